/* Replaces functions that would load shared libraries. A statically linked program must not load
 * libraries of the machine on which it runs, because they would bring a second C library. Only
 * reel-static is linked with this file.
 *
 * hwloc finds no plugins and no udev, and reads /sys without them. An owner's name is looked
 * up only in /etc/passwd; reel shows the user id of an owner that is not there. */
#include <pwd.h>
#include <stdio.h>

struct udev;
struct udev_device;
struct udev *udev_new(void);
struct udev *udev_unref(struct udev *u);
struct udev_device *udev_device_new_from_subsystem_sysname(struct udev *u, const char *subsystem,
                                                           const char *name);
const char *udev_device_get_property_value(struct udev_device *d, const char *key);
struct udev_device *udev_device_unref(struct udev_device *d);
void *dlopen(const char *file, int mode);
void *dlsym(void *restrict handle, const char *restrict name);
int dlclose(void *handle);
char *dlerror(void);

struct udev *udev_new(void)
{
    return NULL;
}

struct udev *udev_unref(struct udev *u)
{
    return u;
}

struct udev_device *udev_device_new_from_subsystem_sysname(struct udev *u, const char *subsystem,
                                                           const char *name)
{
    (void)u;
    (void)subsystem;
    (void)name;
    return NULL;
}

const char *udev_device_get_property_value(struct udev_device *d, const char *key)
{
    (void)d;
    (void)key;
    return NULL;
}

struct udev_device *udev_device_unref(struct udev_device *d)
{
    return d;
}

void *dlopen(const char *file, int mode)
{
    (void)file;
    (void)mode;
    return NULL;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    (void)handle;
    (void)name;
    return NULL;
}

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

char *dlerror(void)
{
    static char text[] = "this program loads no libraries";
    return text;
}

struct passwd *getpwuid(uid_t uid)
{
    FILE *f = fopen("/etc/passwd", "re");
    struct passwd *entry = NULL;
    while (f && (entry = fgetpwent(f)) && entry->pw_uid != uid)
        ;
    if (f)
        fclose(f);
    return entry;
}
