/* Log lines. The library formats them and hands them to a sink; who owns the terminal decides how
 * they look. Without a sink they are dropped. Thread-safe once the sink is set. */
#ifndef OCT_BASE_LOG_H
#define OCT_BASE_LOG_H

typedef enum oct_log_level { OCT_LOG_INFO, OCT_LOG_WARNING } oct_log_level;

typedef void (*oct_log_sink)(void *user, oct_log_level level, const char *line);

void oct_log_set_sink(oct_log_sink sink, void *user); /* NULL: drop */

void oct_log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void oct_log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
