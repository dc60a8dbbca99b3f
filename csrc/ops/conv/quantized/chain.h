/* Tensors of a chain of convolutions (chain.c): memory that steps use one after the other, and what is done to a tensor
 * between two convolutions. */
#ifndef HC_CONV_CHAIN_H
#define HC_CONV_CHAIN_H

#include "ops/conv/quantized/images.h"

typedef struct {
    void *data;
    int64_t bytes;
    bool used;
} hc_room;

typedef struct {
    int64_t channels, height, width;
    int last;            /* step that reads it last */
    bool is_known;       /* an input */
    bool keeps, guesses; /* whether values are needed besides codes; whether codes may be guessed */
    int64_t around[4];   /* zeros in the codes */
    hc_view view;        /* of the image at hand: (1, channel, h, w) */
    float *values;       /* or NULL: an input that is read as it is */
    uint8_t *codes;      /* or NULL */
    float scale;         /* of the codes */
    uint32_t largest;    /* bits of the largest magnitude */
    hc_room *of_values, *of_codes;
} hc_tensor;

typedef struct {
    const hc_run *run;
    int n_inputs, n_steps;
    const hc_view *inputs;
    hc_conv_step *steps;
    hc_tensor *tensors;
    hc_room *rooms;
    int n_rooms, most_rooms; /* more than are used at a time */
    int *links;              /* of each step: its algorithm, or -1 */
} hc_chain;

/* Memory that no other tensor uses, or NULL. */
hc_room *hc_chain_room(hc_chain *chain, int64_t bytes);
/* Gives memory back: of codes, of all. */
void hc_tensor_leave_codes(hc_tensor *t);
void hc_tensor_leave(hc_tensor *t);
/* A view (1, channel, h, w) of contiguous values (h, w, channel). */
hc_view hc_pixels_view(void *data, int64_t channels, int64_t height, int64_t width);
/* Codes of a line with its zeros; the first code of a line. */
static inline int64_t hc_codes_line(const hc_tensor *t) {
    return (t->width + t->around[2] + t->around[3]) * t->channels;
}
static inline uint8_t *hc_codes_at(const hc_tensor *t, int64_t line) {
    return t->codes + (line + t->around[0]) * hc_codes_line(t) + t->around[2] * t->channels;
}
/* Memory for codes, with zeros around them; for values. False: out of memory, here and below. */
bool hc_tensor_has_codes(hc_chain *chain, hc_tensor *t);
bool hc_tensor_has_values(hc_chain *chain, hc_tensor *t);
/* Codes of all values. */
void hc_tensor_round(const hc_chain *chain, hc_tensor *t);
/* Values of a tensor whose view is an input's. */
bool hc_tensor_turn(hc_chain *chain, hc_tensor *t);
/* All values as planes (channel, h, w). */
void hc_tensor_planes(const hc_chain *chain, const hc_tensor *t, float *to);
/* The last steps of values, and their largest magnitude. */
bool hc_tensor_finish(const hc_chain *chain, hc_tensor *t, const hc_link_steps *steps, const float *plus);
/* y = the largest values of the windows of x, the first of equal ones; a window has pixels of x. */
void hc_tensor_pool(const hc_chain *chain, const hc_tensor *x, hc_tensor *y, const hc_window *window,
                    const int64_t size[2]);

#endif
