/* Fills, reads, updates, cycles and energy of one choice.
 *
 *     fills(T, i)  = tile + (b_k - 1) new, times the bounds of all loops outside k
 *     accesses     = fills(child) x different tiles among the children
 *     energy       = sum of ceil(count / block) x cost, times clusters in use, + leak x cycles x instances in use
 *
 * k is the innermost loop outside level i that moves T. `new` is the tile, or only its new part if the tile slides
 * along one axis. Words that multipliers share below the last level also stay there. Parashar et al., "Timeloop",
 * ISPASS 2019; compressed tiles as in Wu et al., "Sparseloop", MICRO 2022.
 */
#include "model/cost.h"

#include <math.h>

/* The same two numbers as in hardware/mapper/nest.py, which explains them. */
static const double ROUNDING = 1 - 0x1p-40;
static const double DEVIATIONS = 2.3263478740408408;

static double share_up(double count, double share) { return share < 1 ? ceil(count * share * ROUNDING) : count; }
static double share_down(double count, double share) { return share < 1 ? floor(count * share / ROUNDING) : count; }
static double vectors(double words, double block) { return block == 1 ? words : ceil(words / block); }

static double length_of(const hc_map_axis *axis, const double *size) {
    double length = 1 + axis->coefficient[0] * (size[axis->dim[0]] - 1);
    if (axis->count == 2)
        length += axis->coefficient[1] * (size[axis->dim[1]] - 1);
    return length;
}

static double tile_of(const hc_map_tensor *tensor, const double *size) {
    double words = 1;
    for (int a = 0; a < tensor->n_axes; a++)
        words *= length_of(&tensor->axis[a], size);
    return words;
}

static double stored_of(const hc_map_tensor *tensor, double words) {
    const double mean = share_up(words, tensor->share);
    if (!tensor->uniform || tensor->share >= 1)
        return mean;
    const double left = tensor->words > 1 ? (tensor->words - words) / (tensor->words - 1) : 0;
    const double spread = sqrt(words * tensor->share * (1 - tensor->share) * left);
    const double reserve = ceil((words * tensor->share + DEVIATIONS * spread) * ROUNDING);
    return fmin(fmin(words, share_up(tensor->words, tensor->share)), fmax(mean, reserve));
}

/* Number of different values of a i + b j for i < m, j < n: all pairs, less those with a duplicate (i + b/g, j -
 * a/g). */
static double sums(double a, double m, double b, double n) {
    if (m == 1 || n == 1 || a >= b * n || b >= a * m)
        return m * n;
    int64_t x = (int64_t)a, y = (int64_t)b;
    while (y) {
        const int64_t rest = x % y;
        x = y, y = rest;
    }
    return m * n - fmax(0, m - b / (double)x) * fmax(0, n - a / (double)x);
}

static double offsets_of(const hc_map_tensor *tensor, const int64_t *spread, const double *inner) {
    double count = 1;
    for (int a = 0; a < tensor->n_axes; a++) {
        const hc_map_axis *axis = &tensor->axis[a];
        const int p = axis->dim[0];
        if (axis->count == 1) {
            count *= (double)spread[p];
        } else {
            const int q = axis->dim[1];
            count *= sums(axis->coefficient[0] * inner[p], (double)spread[p], axis->coefficient[1] * inner[q],
                          (double)spread[q]);
        }
    }
    return count;
}

static bool fits(const hc_map_model *model, const hc_map_layout *layout) {
    for (int i = 0; i < model->n_levels; i++) {
        const hc_map_level *level = &model->level[i];
        double total = 0;
        for (int t = 0; t < model->n_tensors; t++) {
            if (!(level->keeps >> t & 1))
                continue;
            double words = layout->tile[t][i];
            if (level->compressed >> t & 1)
                words = stored_of(&model->tensor[t], words);
            if (words > level->own_words[t])
                return false;
            total += words;
        }
        if (total > level->words)
            return false;
    }
    return true;
}

bool hc_map_lay_out(const hc_map_model *model, const hc_map_choice *choice, hc_map_layout *layout) {
    const int n_levels = model->n_levels, n_dims = model->n_dims;
    double spread[HC_MAP_LEVELS], ever[HC_MAP_DIMS];
    for (int d = 0; d < n_dims; d++)
        ever[d] = layout->size[n_levels][d] = 1;
    layout->cycles = 1;
    for (int i = n_levels - 1; i >= 0; i--) {
        double time = 1, space = 1;
        for (int d = 0; d < n_dims; d++) {
            const double in_time = (double)choice->factor[i][d], in_space = (double)choice->factor[n_levels + i][d];
            time *= in_time, space *= in_space;
            layout->size[i][d] = layout->size[i + 1][d] * in_time * in_space;
            ever[d] *= in_time;
        }
        if (space > model->level[i].fanout)
            return false;
        layout->in_time[i] = time, spread[i] = space;
        layout->cycles *= time;
    }
    for (int i = 0; i < n_levels; i++)
        for (int t = 0; t < model->n_tensors; t++)
            if (model->level[i].keeps >> t & 1)
                layout->tile[t][i] = tile_of(&model->tensor[t], layout->size[i]);
    if (!fits(model, layout))
        return false;
    layout->used[0] = 1;
    for (int i = 1; i < n_levels; i++)
        layout->used[i] = layout->used[i - 1] * spread[i - 1];
    for (int t = 0; t < model->n_tensors; t++) {
        layout->tile[t][n_levels] = 1;
        layout->shared[t] = false;
        for (int d = 0; d < n_dims; d++)
            if (choice->factor[2 * n_levels - 1][d] > 1 && model->tensor[t].axis_of[d] < 0)
                layout->shared[t] = true;
    }
    for (int i = n_levels - 1; i >= 0; i--) {
        for (int d = 0; d < n_dims; d++)
            ever[d] *= (double)choice->factor[n_levels + i][d];
        for (int t = 0; t < model->n_tensors; t++)
            layout->copies[t][i] =
                spread[i] == 1 ? 1 : offsets_of(&model->tensor[t], choice->factor[n_levels + i], layout->size[i + 1]);
        if (model->level[i].keeps >> model->output & 1)
            layout->partition[model->output][i] = tile_of(&model->tensor[model->output], ever);
    }
    return true;
}

/* Words that one step of a loop brings in. */
static double new_words(const hc_map_tensor *tensor, int dim, double step, const double *size, double words) {
    const hc_map_axis *axis = &tensor->axis[tensor->axis_of[dim]];
    if (axis->count == 1)
        return words;
    const double length = length_of(axis, size), shift = step * axis->coefficient[axis->dim[1] == dim];
    return shift >= length ? words : words / length * shift;
}

static double fills_of(const hc_map_model *model, const hc_map_choice *choice, const hc_map_layout *layout, int t,
                       int place) {
    const hc_map_tensor *tensor = &model->tensor[t];
    const double words = layout->tile[t][place];
    double count = 0;
    for (int i = place - 1; i >= 0; i--) {
        if (count || layout->in_time[i] == 1) {
            count *= layout->in_time[i];
            continue;
        }
        const int64_t *order = model->level[i].orders + choice->order[i] * model->n_dims;
        for (int at = model->n_dims - 1; at >= 0; at--) {
            const int64_t dim = order[at], bound = choice->factor[i][dim];
            if (bound == 1)
                continue;
            if (count) {
                count *= (double)bound;
            } else if (tensor->axis_of[dim] >= 0) {
                const double step = layout->size[i + 1][dim] * (double)choice->factor[model->n_levels + i][dim];
                count = words + (double)(bound - 1) * new_words(tensor, (int)dim, step, layout->size[place], words);
            }
        }
    }
    return count ? count : words;
}

void hc_map_finish(const hc_map_model *model, const hc_map_choice *choice, const hc_map_layout *layout,
                   hc_map_cost *cost) {
    const int n_levels = model->n_levels;
    double read[HC_MAP_LEVELS] = {0}, taken[HC_MAP_LEVELS] = {0}, energy = model->mac_energy;
    for (int t = 0; t < model->n_tensors; t++) {
        /* Fills of the child; the first child is the multipliers. */
        double below = layout->shared[t] ? fills_of(model, choice, layout, t, n_levels) : layout->cycles, copies = 1;
        for (int i = n_levels - 1; i >= 0; i--) {
            const hc_map_level *level = &model->level[i];
            copies *= layout->copies[t][i];
            if (!(level->keeps >> t & 1))
                continue;
            double fills = i ? fills_of(model, choice, layout, t, i) : 0;
            double reads = below * copies, updates = 0;
            below = fills, copies = 1;
            if (t == model->output) {
                const double first = layout->partition[t][i];
                updates = share_up(reads, level->update_share[t]);
                reads = share_down(fmax(0, reads - first), level->read_share[t]);
                fills = fmax(0, fills - first);
            } else {
                if (level->compressed >> t & 1) {
                    reads = share_up(reads, model->tensor[t].share);
                    fills = share_up(fills, model->tensor[t].share);
                }
                reads = share_up(reads, level->read_share[t]);
            }
            read[i] += reads, taken[i] += fills + updates;
            energy += fmin(layout->used[i], ceil(level->instances / level->cluster)) *
                      (vectors(reads, level->block) * level->read + vectors(fills, level->block) * level->write +
                       vectors(updates, level->block) * level->update);
        }
    }
    double cycles = share_up(layout->cycles, model->cycle_share), leak = 0;
    for (int i = 0; i < n_levels; i++) {
        const hc_map_level *level = &model->level[i];
        leak += level->leak * layout->used[i];
        if (isinf(level->bandwidth_out) && isinf(level->bandwidth_in) && isinf(level->bandwidth))
            continue;
        cycles = fmax(cycles, ceil(read[i] / level->bandwidth_out));
        cycles = fmax(cycles, ceil(taken[i] / level->bandwidth_in));
        cycles = fmax(cycles, ceil((read[i] + taken[i]) / level->bandwidth));
    }
    cost->cycles = cycles;
    cost->energy = energy + leak * cycles;
    cost->first = model->objective == HC_MAP_ENERGY ? cost->energy
                  : model->objective == HC_MAP_EDP  ? cost->energy * cycles
                                                    : cycles;
    cost->second = model->objective == HC_MAP_DELAY ? cost->energy : cycles;
}

bool hc_map_cost_of(const hc_map_model *model, const hc_map_choice *choice, hc_map_cost *cost) {
    hc_map_layout layout;
    if (!hc_map_lay_out(model, choice, &layout))
        return false;
    hc_map_finish(model, choice, &layout, cost);
    return true;
}
