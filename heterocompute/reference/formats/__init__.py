"""The definitions of the families of formats, one module for each, with the family's name.

A module has these functions, in this order. `fmt` is the format, `sizes` the geometry of its groups, `components` the
stored arrays by name. Codes, values and weights have the shape (rows, groups, group).

    layout(fmt, sizes)                     component -> (dtype, shape)
    encode(fmt, sizes, x, clip)            components of x, float64, padded with 0; clip: as of `clip.thresholds`
    stored_codes(fmt, sizes, components)   int64 codes as they are stored, padding included
    terms(fmt, sizes, components)          factors of the values

Some have more:

    legal(fmt, x)                          which values can be encoded, if it is not all finite ones
    encode(..., importance)                a learned codebook; weights of the squared errors, or None
    fraction_steps(fmt)                    a factor that makes every element an int8 integer; 1 if there is none
    is_whole(fmt)                          whether the elements are integers that `terms` gives as floats
    terms_above(fmt, sizes, components)    (terms, float32 minima of the groups), or None without minima
    no_minus_zero(fmt) or NO_MINUS_ZERO    whether a product of -0 decodes to +0
"""
