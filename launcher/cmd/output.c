/* This file checks where a command's output goes, before the command does any work. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "launcher/cmd/cmd.h"

/* Finds the file that an input names, with or without ":N" after it. */
static bool input_find(const char *input, struct stat *out)
{
    char file[LIMIT_PATH_BYTES];
    const char *colon = strrchr(input, ':');
    if (stat(input, out) == 0 || !colon)
        return stat(input, out) == 0;
    snprintf(file, sizeof file, "%.*s", (int)(colon - input), input);
    return stat(file, out) == 0;
}

int cmd_spare(const char *option, const char *output, const char *const *inputs, size_t n,
              struct err *err)
{
    struct stat to, from;
    if (output && strcmp(output, "-") == 0)
        return err_set(err, ERR_USAGE,
                       "%s -: it takes a file, and - stands for none here: give its name (./- for "
                       "one that is named so)", option);
    if (!output || stat(output, &to) < 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (inputs[i] && input_find(inputs[i], &from) && from.st_dev == to.st_dev &&
            from.st_ino == to.st_ino)
            return err_set(err, ERR_USAGE,
                           "%s '%s' would write over what is read as '%s': give another file",
                           option, output, inputs[i]);
    return 0;
}

/* Replaces a path by what the symbolic link there says. Returns false if there is no link, or no
 * room for its text. */
static bool link_follow(char path[LIMIT_PATH_BYTES])
{
    char to[LIMIT_PATH_BYTES];
    ssize_t n = readlink(path, to, sizeof to - 1);
    const char *slash = strrchr(path, '/');
    size_t keep = n > 0 && to[0] != '/' && slash ? (size_t)(slash + 1 - path) : 0;
    if (n <= 0 || keep + (size_t)n >= LIMIT_PATH_BYTES)
        return false;
    memcpy(path + keep, to, (size_t)n);
    path[keep + (size_t)n] = '\0';
    return true;
}

const char *cmd_output_place(const char *output, char place[LIMIT_PATH_BYTES])
{
    enum { LINKS = 40 }; /* Linux follows as many */
    if (snprintf(place, LIMIT_PATH_BYTES, "%s", output) >= LIMIT_PATH_BYTES)
        return output;
    for (int i = 0; i < LINKS; i++)
        if (file_is_descriptor(place) || !link_follow(place))
            return place;
    return output;
}

/* Refuses what is there already, if it is no file and a file shall not be put in its place. A pipe
 * without a reader would be waited for, and with one, be written to twice by a check. */
static int kind_check(const char *option, const char *output, const char *place, struct err *err)
{
    struct stat st;
    if (stat(output, &st) < 0)
        return errno == ENOENT ? 0 : err_set_errno(err, ERR_IO, "cannot write %s '%s'", option,
                                                   output);
    if (S_ISDIR(st.st_mode))
        return err_set(err, ERR_USAGE, "%s '%s' is a folder: give a file", option, output);
    if (S_ISREG(st.st_mode) || S_ISCHR(st.st_mode) || file_is_descriptor(place))
        return 0;
    return err_set(err, ERR_USAGE, "%s '%s' is a %s: give a file, or /dev/stdout", option, output,
                   S_ISFIFO(st.st_mode) ? "pipe" : S_ISSOCK(st.st_mode) ? "socket" : "disk");
}

/* Checks that the output can be opened, as it will be when it is written. */
static int open_check(const char *option, const char *output, const char *place, struct err *err)
{
    struct file_pub p;
    struct err why;
    int rc = file_pub_open(&p, place, &why);
    if (rc == 0)
        file_pub_abort(&p);
    else
        rc = err_set(err, err_exit_code(rc) == err_exit_code(ERR_IO) ? rc : ERR_IO,
                     "cannot write %s '%s': %s", option, output, why.text);
    return rc;
}

int cmd_output_check(const char *option, const char *output, struct err *err)
{
    char dir[LIMIT_PATH_BYTES], buf[LIMIT_PATH_BYTES];
    const char *place = output ? cmd_output_place(output, buf) : NULL;
    const char *slash = place ? strrchr(place, '/') : NULL;
    struct stat st;
    int rc;
    if (!output)
        return 0;
    if (!*output)
        return err_set(err, ERR_USAGE, "%s is empty: give a file", option);
    if ((rc = kind_check(option, output, place, err)) < 0)
        return rc;
    snprintf(dir, sizeof dir, "%.*s",
             slash == place ? 1
             : slash        ? (int)(slash - place)
                            : 1,
             slash ? place : ".");
    if (access(dir, W_OK) < 0 && !file_is_descriptor(place))
        return err_set_errno(err, ERR_IO, "cannot write %s '%s'", option, output);
    if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_IO, "cannot write %s '%s': '%s' is no folder", option, output, dir);
    return open_check(option, output, place, err);
}
