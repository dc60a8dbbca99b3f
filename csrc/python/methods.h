/* Methods of the module that have their own files; module.c lists all of them. */
#ifndef HC_METHODS_H
#define HC_METHODS_H

#include "python/limited.h"

/* in_float_env(function, args, kwargs) -> function(*args, **kwargs), in the environment of base/float_env.h. */
PyObject *hc_in_float_env_method(PyObject *self, PyObject *args);
/* in_callers_float_env(function, args, kwargs) -> its result, in the environment outside of the call above. */
PyObject *hc_in_callers_float_env_method(PyObject *self, PyObject *args);
PyObject *hc_prune_method(PyObject *self, PyObject *args);
PyObject *hc_permute_method(PyObject *self, PyObject *args);
PyObject *hc_conv2d_outer_method(PyObject *self, PyObject *args);
PyObject *hc_count_outer_method(PyObject *self, PyObject *args);
PyObject *hc_bitmap_method(PyObject *self, PyObject *args);
PyObject *hc_terms_method(PyObject *self, PyObject *args);
PyObject *hc_emulate_codes_method(PyObject *self, PyObject *args);
PyObject *hc_emulate_floats_method(PyObject *self, PyObject *args);

/* products.c */
PyObject *hc_matmul_method(PyObject *self, PyObject *args);
PyObject *hc_matmul_shape_method(PyObject *self, PyObject *args);
PyObject *hc_explain_method(PyObject *self, PyObject *args);
PyObject *hc_paths_method(PyObject *self, PyObject *args);
PyObject *hc_conv2d_method(PyObject *self, PyObject *args);
PyObject *hc_explain_conv2d_method(PyObject *self, PyObject *args);
PyObject *hc_conv_algorithms_method(PyObject *self, PyObject *args);
PyObject *hc_prepack_method(PyObject *self, PyObject *args);

/* cuda/ */
PyObject *hc_cuda_addresses_method(PyObject *self, PyObject *unused);
PyObject *hc_cuda_open_method(PyObject *self, PyObject *args);
PyObject *hc_cuda_modules_method(PyObject *self, PyObject *args);
PyObject *hc_cuda_allocate_method(PyObject *self, PyObject *args);
PyObject *hc_cuda_hold_method(PyObject *self, PyObject *args);
PyObject *hc_cuda_free_method(PyObject *self, PyObject *args);
PyObject *hc_cuda_copy_method(PyObject *self, PyObject *args);
PyObject *hc_cuda_move_method(PyObject *self, PyObject *args);
PyObject *hc_cuda_wait_method(PyObject *self, PyObject *args);
PyObject *hc_cuda_place_method(PyObject *self, PyObject *address);
PyObject *hc_cuda_check_method(PyObject *self, PyObject *args);

/* direct.c: direct_types(types...), and direct(run, is_linear, a, b, bias, activations, out) -> answer or None. */
PyObject *hc_direct_types_method(PyObject *self, PyObject *args);
PyObject *hc_direct_method(PyObject *self, PyObject *const *args, Py_ssize_t n);

/* stored.c */
PyObject *hc_move_codes_method(PyObject *self, PyObject *args);
PyObject *hc_code_fault_method(PyObject *self, PyObject *args);
PyObject *hc_blocks_method(PyObject *self, PyObject *args);
PyObject *hc_blocks_bytes_method(PyObject *self, PyObject *args);

/* training.c */
PyObject *hc_fake_quantize_method(PyObject *self, PyObject *args);
PyObject *hc_inside_shape_method(PyObject *self, PyObject *args);
PyObject *hc_keep_inside_method(PyObject *self, PyObject *args);
PyObject *hc_round_by_chance_method(PyObject *self, PyObject *args);
PyObject *hc_scaled_steps_method(PyObject *self, PyObject *args);
PyObject *hc_slope_sums_method(PyObject *self, PyObject *args);

/* layers.c */
PyObject *hc_layer_method(PyObject *self, PyObject *args);
PyObject *hc_attention_method(PyObject *self, PyObject *args);

/* llm.c */
PyObject *hc_llm_layers_method(PyObject *self, PyObject *args);

/* ptq.c */
PyObject *hc_ptq_gram_method(PyObject *self, PyObject *args);
PyObject *hc_ptq_factor_method(PyObject *self, PyObject *args);
PyObject *hc_ptq_score_method(PyObject *self, PyObject *args);
PyObject *hc_ptq_columns_method(PyObject *self, PyObject *args);
PyObject *hc_ptq_descend_method(PyObject *self, PyObject *args);
PyObject *hc_ptq_levels_method(PyObject *self, PyObject *args);
PyObject *hc_ptq_losses_method(PyObject *self, PyObject *args);

/* compressed.c */
PyObject *hc_csr_transpose_method(PyObject *self, PyObject *args);
PyObject *hc_csr_matmul_method(PyObject *self, PyObject *args);
PyObject *hc_eie_codebook_method(PyObject *self, PyObject *args);
PyObject *hc_eie_count_method(PyObject *self, PyObject *args);
PyObject *hc_eie_encode_method(PyObject *self, PyObject *args);
PyObject *hc_eie_check_method(PyObject *self, PyObject *args);
PyObject *hc_eie_decode_method(PyObject *self, PyObject *args);
PyObject *hc_eie_expand_method(PyObject *self, PyObject *args);
PyObject *hc_eie_multiply_method(PyObject *self, PyObject *args);
PyObject *hc_eie_load_method(PyObject *self, PyObject *args);

/* blas.c: a BLAS found at run time, nothing is linked. model.c: csrc/model/. */
PyObject *hc_blas_open_method(PyObject *self, PyObject *args);
PyObject *hc_blas_speed_method(PyObject *self, PyObject *args);
PyObject *hc_routes_method(PyObject *self, PyObject *args);
PyObject *hc_model_cost(PyObject *self, PyObject *args);
PyObject *hc_model_enumerate(PyObject *self, PyObject *args);
PyObject *hc_model_walk(PyObject *self, PyObject *args);
PyObject *hc_model_walk_on(PyObject *self, PyObject *args);
PyObject *hc_model_systolic(PyObject *self, PyObject *args);

#endif
