/* meter_class: tells which class of the price of a step a kind of operation is one of. */
#ifndef TRAINER_WATCH_METER_CLASS_H
#define TRAINER_WATCH_METER_CLASS_H

/* The update has the norms of gradients. What is none of them sends messages. */
enum meter_class {
    METER_CLASS_GEMM, METER_CLASS_ATTN_FWD, METER_CLASS_ATTN_BWD, METER_CLASS_ELEMENTWISE,
    METER_CLASS_INPUTS, METER_CLASS_UPDATE, METER_CLASSES
};
/* Returns the class of a kind of meter.h; METER_CLASSES: none. */
enum meter_class meter_class_of(int kind);

#endif
