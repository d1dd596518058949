// Uplink: see uplink.h.
#include "uplink.h"

#include "sums.h"

namespace geomx {

Uplink::Uplink(Side& wan, Client& client, std::function<void()> on_all_left)
    : wan_(wan), client_(client), on_all_left_(std::move(on_all_left)) {
  client_.on_value([this](const Frame& frame, bool answers) { take(frame, answers); });
}

void Uplink::offer(uint32_t key, uint32_t part, uint32_t, uint32_t, Bytes sum, const MemberSet&, int priority) {
  client_.push(key, part, std::move(sum), priority);
}

Bytes Uplink::allocate(uint32_t key, uint32_t part, size_t size) {
  return wan_.link.allocate(server(wan_.server_of(*wan_.keys.find(key), part)), size);
}

void Uplink::want(uint32_t key, uint32_t part) { client_.pull(key, part, 0); }

void Uplink::initial(uint32_t key, uint32_t part, Bytes raw) { client_.send_initial(key, part, std::move(raw)); }

void Uplink::all_left() { on_all_left_(); }

void Uplink::take(const Frame& frame, bool answers) {
  Bytes values;
  {
    const TraceSpan span(wan_.trace,
                         wan_.event(TraceKind::decode, Direction::down, frame.key, frame.part, frame.round));
    if (Status status = client_.decode(frame, &values); !status.ok()) return wan_.fail(status.message());
  }
  if (answers) return lan_->finish(frame.key, frame.part, 0, std::move(values));
  lan_->set_value(frame.key, frame.part, frame.round, to_raw(wan_.keys.find(frame.key)->spec.dtype, values));
}

}  // namespace geomx
