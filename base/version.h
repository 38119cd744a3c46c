/* version: of all of reel's programs; `--version` prints it. */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#define REEL_VERSION "0.1.0"

#endif
