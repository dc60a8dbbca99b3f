/* Reads a model and its choices from arrays of numbers. Every index and size is checked here, and nowhere below. */
#include "model/mapper.h"

#include <math.h>
#include <string.h>

/* The exact range of float64. */
static const int64_t MAX_COUNT = INT64_C(1) << 53;

typedef struct {
    const int64_t *ints;
    const double *reals;
    int64_t n_ints, n_reals;
    bool short_of, out_of_range;
} reader;

static int64_t whole(reader *from, int64_t least, int64_t most) {
    if (from->n_ints < 1) {
        from->short_of = true;
        return least;
    }
    from->n_ints--;
    const int64_t number = *from->ints++;
    if (number >= least && number <= most)
        return number;
    from->out_of_range = true;
    return least;
}

/* Infinity stands for no limit. */
static double real(reader *from) {
    if (from->n_reals < 1) {
        from->short_of = true;
        return 1;
    }
    from->n_reals--;
    const double number = *from->reals++;
    if (number >= 0)
        return number;
    from->out_of_range = true;
    return 1;
}

static void read_tensor(reader *from, const hc_map_model *model, hc_map_tensor *tensor) {
    for (int d = 0; d < HC_MAP_DIMS; d++)
        tensor->axis_of[d] = -1;
    tensor->n_axes = (int)whole(from, 0, HC_MAP_AXES);
    double words = 1;
    for (int a = 0; a < tensor->n_axes; a++) {
        hc_map_axis *axis = &tensor->axis[a];
        axis->count = (int)whole(from, 1, 2);
        double length = 1;
        for (int i = 0; i < axis->count; i++) {
            const int dim = axis->dim[i] = (int)whole(from, 0, model->n_dims - 1);
            axis->coefficient[i] = (double)whole(from, 1, MAX_COUNT);
            length += axis->coefficient[i] * (double)(model->bound[dim] - 1);
            if (tensor->axis_of[dim] >= 0)
                from->out_of_range = true;
            tensor->axis_of[dim] = a;
        }
        words *= length;
    }
    tensor->words = words;
    tensor->share = real(from);
    tensor->uniform = whole(from, 0, 1) == 1;
}

static void read_level(reader *from, const hc_map_model *model, hc_map_level *level) {
    const int64_t all = (INT64_C(1) << model->n_tensors) - 1;
    level->keeps = (uint32_t)whole(from, 0, all);
    level->compressed = (uint32_t)whole(from, 0, all);
    double *const numbers[] = {&level->words,  &level->block,        &level->read,          &level->write,
                               &level->update, &level->leak,         &level->instances,     &level->cluster,
                               &level->fanout, &level->bandwidth_in, &level->bandwidth_out, &level->bandwidth};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = real(from);
    for (int t = 0; t < model->n_tensors; t++) {
        level->own_words[t] = real(from);
        level->read_share[t] = real(from);
        level->update_share[t] = real(from);
    }
    const int64_t room = from->n_ints / model->n_dims;
    level->n_orders = whole(from, 1, room > 1 ? room : 1);
    level->orders = from->ints;
    for (int64_t row = 0; row < level->n_orders; row++) {
        uint32_t seen = 0;
        for (int d = 0; d < model->n_dims; d++)
            seen |= 1u << whole(from, 0, model->n_dims - 1);
        if (seen != (1u << model->n_dims) - 1)
            from->out_of_range = true;
    }
}

hc_status hc_map_read(const int64_t *ints, int64_t n_ints, const double *reals, int64_t n_reals, hc_map_model *model,
                      hc_error *error) {
    reader from = {ints, reals, n_ints, n_reals, false, false};
    memset(model, 0, sizeof *model);
    model->n_dims = (int)whole(&from, 1, HC_MAP_DIMS);
    model->n_levels = (int)whole(&from, 1, HC_MAP_LEVELS);
    model->n_tensors = (int)whole(&from, 1, HC_MAP_TENSORS);
    model->output = (int)whole(&from, 0, model->n_tensors - 1);
    model->objective = (hc_map_objective)whole(&from, HC_MAP_ENERGY, HC_MAP_EDP);
    for (int d = 0; d < model->n_dims; d++)
        model->bound[d] = whole(&from, 1, INT32_MAX);
    for (int slot = 0; slot < 2 * model->n_levels; slot++)
        model->allowed[slot] = (uint32_t)whole(&from, 0, (INT64_C(1) << model->n_dims) - 1);
    model->mac_energy = real(&from);
    model->cycle_share = real(&from);
    for (int t = 0; t < model->n_tensors; t++)
        read_tensor(&from, model, &model->tensor[t]);
    for (int i = 0; i < model->n_levels; i++)
        read_level(&from, model, &model->level[i]);
    if (from.short_of || from.n_ints || from.n_reals)
        return hc_fail(error, HC_VALUE, "search: the model has %lld and %lld numbers too many, or too few",
                       (long long)from.n_ints, (long long)from.n_reals);
    if (from.out_of_range || model->level[0].keeps != (1u << model->n_tensors) - 1)
        return hc_fail(error, HC_VALUE, "search: a number of the model is out of its range");
    return HC_OK;
}

hc_status hc_map_read_choice(const hc_map_model *model, const int64_t *numbers, int64_t count, hc_map_choice *choice,
                             hc_error *error) {
    const int n_dims = model->n_dims, n_slots = 2 * model->n_levels;
    memset(choice, 0, sizeof *choice);
    if (count != (int64_t)n_slots * n_dims + model->n_levels)
        return hc_fail(error, HC_VALUE, "search: a choice has %lld numbers, expected %d", (long long)count,
                       n_slots * n_dims + model->n_levels);
    for (int d = 0; d < n_dims; d++) {
        int64_t rest = model->bound[d];
        for (int slot = 0; slot < n_slots; slot++) {
            const int64_t factor = choice->factor[slot][d] = numbers[slot * n_dims + d];
            if (factor < 1 || rest % factor)
                return hc_fail(error, HC_VALUE, "search: factors of dimension %d do not multiply to %lld", d,
                               (long long)model->bound[d]);
            rest /= factor;
        }
        if (rest != 1)
            return hc_fail(error, HC_VALUE, "search: factors of dimension %d do not multiply to %lld", d,
                           (long long)model->bound[d]);
    }
    for (int i = 0; i < model->n_levels; i++) {
        choice->order[i] = numbers[n_slots * n_dims + i];
        if (choice->order[i] < 0 || choice->order[i] >= model->level[i].n_orders)
            return hc_fail(error, HC_VALUE, "search: level %d has %lld orders, not number %lld", i,
                           (long long)model->level[i].n_orders, (long long)choice->order[i]);
    }
    return HC_OK;
}
