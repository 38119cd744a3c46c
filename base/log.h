/* log: messages of four levels to one sink that main chooses. Libraries report failures through
 * err; log tells what goes on. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

typedef void log_sink_fn(void *ctx, enum log_level level, const char *text);

void log_set_level(enum log_level level);        /* LOG_WARN unless it is called */
void log_set_sink(log_sink_fn *sink, void *ctx); /* NULL drops messages, as before the first call */
/* Prints to stderr: a sink that is ready for use. */
void log_to_stderr(void *program_name, enum log_level level, const char *text);
void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
