// The codec seam: part <-> bytes. Identity is built in (identity_codec.cc); others come through plugin.h or Python.
//
// Threads: all calls for one key come from the node's own thread.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "buffer.h"
#include "status.h"

namespace geomx {

enum class DType : uint8_t { f32 = 0, f16 = 1, bf16 = 2, f64 = 3, i32 = 4, i64 = 5, u8 = 6 };
size_t size_of(DType dtype);
const char* name_of(DType dtype);
bool parse_dtype(const std::string& name, DType* out);
// What values of this type are summed in: float32 for halves, else the type itself.
DType sum_type(DType dtype);

enum class Direction : uint8_t { up = 0, down = 1 };  // towards, away from the domain's servers
enum class Tier : uint8_t { lan = 0, wan = 1 };
enum class Content : uint8_t { gradient = 0, parameter = 1, delta = 2 };  // of the values

constexpr uint32_t fourcc(char a, char b, char c, char d) {
  return uint32_t(uint8_t(a)) | uint32_t(uint8_t(b)) << 8 | uint32_t(uint8_t(c)) << 16 | uint32_t(uint8_t(d)) << 24;
}

// One contiguous part of one tensor in one round, without its values.
struct PartView {
  uint32_t key = 0;  // index of the key in this run
  uint32_t part = 0, num_parts = 1, round = 0;
  uint64_t offset = 0, length = 0;  // elements, within the flattened tensor
  uint64_t tensor_length = 0;
  DType dtype = DType::f32;  // of the key; values are given and taken in sum_type(dtype)
  Tier tier = Tier::lan;
  Direction direction = Direction::up;
  Content content = Content::gradient;
};

// What a codec remembers between rounds for one (peer or shared, key, direction): residuals, momentum.
class Slot {
 public:
  virtual ~Slot() = default;
};

enum class CodecScope : uint8_t { part, shard, tensor };

using Params = std::map<std::string, std::variant<int64_t, double, std::string>>;

class Codec {
 public:
  virtual ~Codec() = default;
  virtual uint32_t wire_id() const = 0;  // FourCC of the byte format
  virtual CodecScope scope() const { return CodecScope::part; }
  virtual bool can_merge() const { return false; }
  // It remembers what it did not send, and takes back what was lost; for others the lane does.
  virtual bool keeps_residual() const { return false; }
  virtual bool takes(DType) const { return true; }
  virtual bool carries(Content) const { return true; }

  virtual std::unique_ptr<Slot> open_slot(const PartView& whole) = 0;  // offset 0, length tensor_length
  // Once a round before the parts are encoded, for codecs whose scope is the tensor. `values` are all its elements.
  virtual Status prepare(Slot&, const PartView& whole, const Bytes& values) = 0;
  // The most bytes that encode() may need for a part.
  virtual uint64_t max_encoded_size(const PartView& view) const { return view.length * size_of(view.dtype); }
  // `values`: view.length elements of sum_type(view.dtype). May return the same memory. Otherwise writes into *encoded
  // where that comes in with max_encoded_size() bytes (memory that is shared with the peer, say), or allocates.
  virtual Status encode(Slot&, const PartView& view, const Bytes& values, Bytes* encoded) = 0;
  // Into memory of view.length elements of sum_type(view.dtype). Refuses wrong bytes with a sentence.
  virtual Status decode(const PartView& view, const Bytes& encoded, Bytes* values) = 0;
  // sum += decoded: costs what the part carries.
  virtual Status accumulate(const PartView& view, const Bytes& encoded, void* sum) = 0;
  // sum = base + decoded, for a base that must stay as it is.
  virtual Status add(const PartView& view, const Bytes& encoded, const Bytes& base, void* sum) {
    if (!base.empty()) std::memcpy(sum, base.data(), base.size());
    return accumulate(view, encoded, sum);
  }
  // What was encoded and not applied goes back into the residual.
  virtual Status give_back(Slot&, const PartView& view, const Bytes& encoded) = 0;
  // Several encoded parts -> one that carries their sum, within the format's rounding; for relays, if can_merge().
  // Where the sum doesn't fit into the format, `merged` stays as it is: they travel on one by one.
  virtual Status merge(const PartView& view, const std::vector<Bytes>& encoded, Bytes* merged) = 0;
  virtual Status score(const PartView& view, const Bytes& encoded, double* contribution) = 0;
  virtual Status save_slot(const Slot&, Bytes* out) const = 0;
  virtual Status load_slot(Slot&, const Bytes& in) = 0;
};

class CodecRegistry;
class TransportPolicy;
class OverlayPolicy;
struct OverlaySite;
using TransportMaker = std::function<Status(const Params&, const CodecRegistry&, std::unique_ptr<TransportPolicy>*)>;
using OverlayMaker = std::function<Status(const Params&, OverlaySite, std::unique_ptr<OverlayPolicy>*)>;
using CodecMaker = std::function<Status(const Params&, std::unique_ptr<Codec>*)>;

// What plugins may ask of the node that loads them. All may be empty; metrics are counted from any thread.
struct PluginHooks {
  std::function<void(int level, const std::string& message)> log;  // levels of Python's logging
  std::function<void(const std::string& name, double value)> metric;
  std::function<uint64_t()> now_us;
  bool is_server = false;
  uint32_t rank = 0, num_members = 0, num_servers = 0;
  Content answer = Content::gradient;  // what comes down: sums, or what an updater makes of them
};

// Names -> makers of one node, of codecs and of whatever else plugins bring. Holds "identity" from the start.
class CodecRegistry {
 public:
  explicit CodecRegistry(PluginHooks hooks = {});
  ~CodecRegistry();
  // For what is known later than the registry is made; codecs that exist already see it too.
  void set_hooks(PluginHooks hooks) { *hooks_ = std::move(hooks); }
  Status add(const std::string& name, CodecMaker maker);
  // A shared library with geomx_plugin_v1 (plugin_host.cc).
  Status load(const std::string& path);
  Status make(const std::string& name, const Params& params, std::unique_ptr<Codec>* out) const;
  Status make_transport(const std::string& name, const Params& params, std::unique_ptr<TransportPolicy>* out) const;
  Status make_overlay(const std::string& name, const Params& params, OverlaySite site,
                      std::unique_ptr<OverlayPolicy>* out) const;

 private:
  std::map<std::string, CodecMaker> makers_;
  std::map<std::string, TransportMaker> transports_;
  std::map<std::string, OverlayMaker> overlays_;
  std::shared_ptr<PluginHooks> hooks_;
};

}  // namespace geomx
