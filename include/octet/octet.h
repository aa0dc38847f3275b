/* octet: 8-bit floating-point formats, quantizers and products on CPUs. Includes the whole public
 * API. */
#ifndef OCTET_OCTET_H
#define OCTET_OCTET_H

#include <octet/codec.h>
#include <octet/format.h>
#include <octet/matrix.h>
#include <octet/preset.h>
#include <octet/product.h>
#include <octet/quantize.h>
#include <octet/quirk.h>
#include <octet/status.h>
#include <octet/tensor.h>
#include <octet/threads.h>
#include <octet/version.h>

#endif
