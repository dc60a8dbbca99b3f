"""The definitions of the families of formats, one module for each, with the family's name. `fmt` is the format, `sizes`
the geometry of its groups. Codes, values and weights have the shape (rows, groups, group). From `legal` on optional:

    layout(fmt, sizes)                        component -> (dtype, shape)
    encode(fmt, sizes, x, clip[, importance]) components of float64 x, padded with 0; `clip.thresholds`; error weights
    stored_codes(fmt, sizes, components)      int64 codes as they are stored, padding included
    terms(fmt, sizes, components)             factors of the values
    legal(fmt, x)                             which values can be encoded, if it is not all finite ones
    terms_above(fmt, sizes, components)       (terms, float32 minima of the groups), or None without minima
    fraction_steps(fmt), is_whole(fmt)        factor from elements to int8, or 1; integers that `terms` gives as floats
    no_minus_zero(fmt) or NO_MINUS_ZERO       whether a product of -0 decodes to +0"""
