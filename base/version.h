/* version: defines the version of all of reel's programs, which `--version` prints. */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#define REEL_VERSION "0.1.0"

#endif
