// What both codecs of this library need besides: arrays, and errors that stay on this side of the border.
#pragma once
#include <geomx/plugin.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace bsc {

// Zeros. Large ones lie in huge pages where the system gives them: single elements all over them are written each
// round.
using Array = std::unique_ptr<uint8_t, void (*)(void*)>;

inline Array make_array(uint64_t bytes) {
  constexpr uint64_t huge = uint64_t(2) << 20, line = 64;
  const uint64_t unit = bytes >= 2 * huge ? huge : line;
  const uint64_t size = (std::max<uint64_t>(bytes, 1) + unit - 1) / unit * unit;
  void* memory = std::aligned_alloc(unit, size);
  if (memory == nullptr) throw std::bad_alloc();
  if (unit == huge) (void)madvise(memory, size, MADV_HUGEPAGE);
  std::memset(memory, 0, size);
  return Array(static_cast<uint8_t*>(memory), std::free);
}

inline Array no_array() { return Array(nullptr, std::free); }

inline gx_status fail(gx_error* error, gx_status status, const char* format, ...) {
  va_list words;
  va_start(words, format);
  std::vsnprintf(error->message, sizeof(error->message), format, words);
  va_end(words);
  return status;
}

// Nothing may be thrown at the host.
template <typename Call>
gx_status guarded(gx_error* error, Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return fail(error, GX_EINTERNAL, "no memory");
  }
}

// The codec that behaves as the published one, for comparisons ("bsc-original", original.cc).
gx_status make_original(void* user, const gx_host* host, const gx_site* site, gx_params params, gx_codec* out,
                        gx_error* error);

}  // namespace bsc
