// A loaded shared library, what the host offers to it, and the core's structs in plugin.h's words.
//
// Every text that a plugin gives is treated as possibly missing or unterminated, and every size that it returns is
// checked against what it was given.
#pragma once
#include <geomx/plugin.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "codec.h"

namespace geomx {

// Makers and what they made share it: it is unloaded when nothing of it is in use.
class Library {
 public:
  using Entry = decltype(&geomx_plugin_v1);
  explicit Library(std::shared_ptr<PluginHooks> hooks);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  // What is refused is told without the path.
  Status open(const std::string& path);
  Entry entry() const { return entry_; }
  const gx_host* host() const { return &host_; }
  gx_site site() const;
  void warn(const std::string& line) const;

 private:
  void* handle_ = nullptr;
  Entry entry_ = nullptr;
  std::shared_ptr<PluginHooks> hooks_;
  gx_host host_;
};

std::string text_of(const gx_error& error, gx_status status);
Status status_of(gx_status status, const gx_error& error);
gx_slice slice_of(const PartView& view, const void* data = nullptr);
gx_bytes bytes_of(const Bytes& bytes);
// They point into `params`.
std::vector<gx_param> params_of(const Params& params);

// The table of functions of one instance, as a pointer that owns it. A newer plugin may have written fields that we
// don't know, into room that is left for them; an older one hasn't written the last ones, which stay null.
template <class T>
class Table {
 public:
  Table() { get()->struct_size = sizeof(T); }
  ~Table() {
    if (get()->release != nullptr) get()->release(get());
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  T* get() const { return &room_.table; }
  T* operator->() const { return get(); }

  // Lets a plugin's maker write it: make(table, error). `least` is the end of the last function that it must have.
  template <class Make>
  Status fill(size_t least, Make make) {
    gx_error error = {};
    const gx_status status = make(get(), &error);
    if (status != GX_OK) *get() = {};  // nothing was made, so nothing is released
    if (status != GX_OK || get()->struct_size >= least) return status_of(status, error);
    return Status::error("its table has " + std::to_string(get()->struct_size) + " bytes, version 1 needs at least " +
                         std::to_string(least));
  }
  // A function whose first argument is the table and whose last is where it says what is wrong.
  template <class Function, class... Arguments>
  Status call(Function T::*function, const Arguments&... arguments) const {
    gx_error error = {};
    const gx_status status = (get()->*function)(get(), arguments..., &error);
    return status_of(status, error);
  }

 private:
  static constexpr size_t kRoomForGrowth = 1024;
  union Room {
    T table;
    uint8_t growth[sizeof(T) + kRoomForGrowth];
    Room() : growth{} {}
  };
  mutable Room room_;
};

}  // namespace geomx
