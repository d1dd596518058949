// Ref-counted bytes. A Bytes is a view plus whatever keeps it alive: copying one never copies memory, and the release
// function runs when the last view is gone, on whichever thread drops it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace geomx {

class Bytes {
 public:
  Bytes() = default;

  // Uninitialised memory, aligned for SIMD.
  static Bytes allocate(size_t size) {
    if (size == 0) return {};
    void* memory = std::aligned_alloc(64, (size + 63) / 64 * 64);
    if (memory == nullptr) throw std::bad_alloc();
    return Bytes(std::shared_ptr<void>(memory, std::free), static_cast<uint8_t*>(memory), size);
  }
  static Bytes copy(const void* data, size_t size) {
    Bytes out = allocate(size);
    if (size != 0) std::memcpy(out.data_, data, size);
    return out;
  }
  static Bytes copy(std::string_view text) { return copy(text.data(), text.size()); }
  // Foreign memory, read only for us; `release` tells its owner that we are done.
  static Bytes wrap(const void* data, size_t size, std::function<void()> release) {
    uint8_t* start = const_cast<uint8_t*>(static_cast<const uint8_t*>(data));
    return Bytes(std::shared_ptr<void>(start,
                                       [r = std::move(release)](void*) {
                                         if (r) r();
                                       }),
                 start, size, true);
  }
  Bytes(std::shared_ptr<void> owner, uint8_t* data, size_t size, bool is_read_only = false)
      : owner_(std::move(owner)), data_(data), size_(size), is_read_only_(is_read_only) {}

  const uint8_t* data() const { return data_; }
  uint8_t* writable() { return data_; }  // only for who allocated it, or while is_unique()
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Nobody else sees this memory, so it may be reused in place. Foreign and shared memory never is.
  bool is_unique() const { return !is_read_only_ && owner_.use_count() == 1; }
  bool is_foreign() const { return is_read_only_; }
  Bytes slice(size_t offset, size_t size) const { return Bytes(owner_, data_ + offset, size, is_read_only_); }
  // `next` begins `distance` bytes behind our first, in the same memory.
  bool is_followed_by(const Bytes& next, size_t distance) const {
    return !owner_.owner_before(next.owner_) && !next.owner_.owner_before(owner_) && data_ + distance == next.data_;
  }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::shared_ptr<void> owner_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  bool is_read_only_ = false;
};

}  // namespace geomx
