/* meter_class: maps kinds of operations to the classes by which the time of a step is predicted. */
#ifndef TRAINER_WATCH_METER_CLASS_H
#define TRAINER_WATCH_METER_CLASS_H

/* The update includes the norms of gradients. Messages and waits belong to no class. */
enum meter_class {
    METER_CLASS_GEMM, METER_CLASS_ATTN_FWD, METER_CLASS_ATTN_BWD, METER_CLASS_ELEMENTWISE,
    METER_CLASS_INPUTS, METER_CLASS_UPDATE, METER_CLASSES
};
/* Returns the class of a kind of meter.h; METER_CLASSES: none. */
enum meter_class meter_class_of(int kind);

#endif
