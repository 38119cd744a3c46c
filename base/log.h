/* log: sends messages of four levels to one sink that main chooses. Libraries return failures
 * through err; log messages report progress and warnings. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

typedef void log_sink_fn(void *ctx, enum log_level level, const char *text);

void log_set_level(enum log_level level);        /* the level is LOG_WARN before the first call */
/* Sets the sink. Messages are dropped if it is NULL, and before the first call. */
void log_set_sink(log_sink_fn *sink, void *ctx);
/* Prints to stderr. It can be used as a sink. */
void log_to_stderr(void *program_name, enum log_level level, const char *text);
void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
