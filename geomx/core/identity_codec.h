// The codec that is always there: values travel as they are, at the key's own width.
#pragma once
#include <memory>

#include "codec.h"

namespace geomx {

std::unique_ptr<Codec> make_identity_codec();

// What a part of this view must measure at its key's width, as a sentence; codecs whose bytes have a fixed length use
// it.
Status check_encoded_size(const PartView& view, size_t size);

}  // namespace geomx
