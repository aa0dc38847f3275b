/* MX of any layout by the kernels, which know rows that are contiguous: pieces of a matrix are
 * copied to where they are, quantized, and copied to where they belong. */
#ifndef OCT_API_MX_PIECES_H
#define OCT_API_MX_PIECES_H

#include <octet/matrix.h>
#include <stdbool.h>

/* 1x32, 32x1 and 32x32 blocks by the plain rules. */
bool oct_mx_pieces_serve(const oct_quantizer *q);
void oct_mx_pieces_quantize(const oct_quantizer *q, const oct_matrix *x, const oct_coded *out);

#endif
