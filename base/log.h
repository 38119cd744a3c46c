/* log: leveled messages to one sink chosen by main. Libraries report through err; log is for what goes on. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

typedef void log_sink_fn(void *ctx, enum log_level level, const char *text);

void log_set_level(enum log_level level);             /* default LOG_WARN; libraries start silent: no sink */
void log_set_sink(log_sink_fn *sink, void *ctx);      /* NULL: drop */
void log_to_stderr(void *program_name, enum log_level level, const char *text); /* a ready sink */
void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
