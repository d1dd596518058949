// Worker: see worker.h.
#include "worker.h"

#include <algorithm>

#include "identity_codec.h"
#include "stopwatch.h"
#include "sums.h"

namespace geomx {

Worker::Worker(Side& side, Client& client, Directory& directory, Options options, Planner planner)
    : side_(side), client_(client), directory_(directory), options_(std::move(options)), planner_(std::move(planner)) {
  client_.on_value([this](const Frame& frame, bool) { take_value(frame); });
}

Worker::State& Worker::state_of(const std::string& name) {
  State& state = states_[key_id(name)];
  state.name = name;
  if (state.key == nullptr)
    if (const Key* key = side_.keys.find_id(key_id(name))) found(state, *key);
  return state;
}

void Worker::found(State& state, const Key& key) {
  state.key = &key;
  state.parts.resize(key.parts.size());
  by_index_[key.spec.index] = &state;
}

// Tickets that are done are forgotten now and then.
void Worker::track(const TicketPtr& ticket) {
  if (tickets_.size() > 64 && (tickets_.size() & (tickets_.size() - 1)) == 0)
    tickets_.erase(std::remove_if(tickets_.begin(), tickets_.end(),
                                  [](const std::weak_ptr<Ticket>& t) { return t.expired() || t.lock()->done(); }),
                   tickets_.end());
  tickets_.push_back(ticket);
  if (!failure_.empty()) ticket->fail(failure_);
}

void Worker::fail(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  for (auto& weak : tickets_)
    if (const TicketPtr ticket = weak.lock()) ticket->fail(why);
  tickets_.clear();
}

void Worker::cancel(const TicketPtr& ticket, const std::string& why) {
  ticket->fail(why);
  auto is_it = [&](const TicketPtr& other) { return other == ticket; };
  for (auto& [id, state] : states_) {
    auto& waiting = state.waiting;
    waiting.erase(std::remove_if(waiting.begin(), waiting.end(), [&](const Waiting& w) { return is_it(w.ticket); }),
                  waiting.end());
    state.inits.erase(std::remove_if(state.inits.begin(), state.inits.end(), is_it), state.inits.end());
    state.pulls.remove_if([&](const Pull& pull) { return is_it(pull.ticket); });
    run_waiting(state);  // it may have been in the way
  }
  leave_if_idle();
}

void Worker::expire(uint64_t now_us, const std::function<std::string(const Ticket&)>& why) {
  std::vector<TicketPtr> late;
  for (const auto& weak : tickets_)
    if (const TicketPtr ticket = weak.lock();
        ticket && ticket->deadline_us() != 0 && ticket->deadline_us() <= now_us && !ticket->done())
      late.push_back(ticket);
  for (const TicketPtr& ticket : late) cancel(ticket, why(*ticket));
}

std::string Worker::blocked_by(const Ticket& ticket) const {
  auto is_it = [&](const TicketPtr& other) { return other.get() == &ticket; };
  for (const auto& [id, state] : states_) {
    const bool waits =
        std::any_of(state.waiting.begin(), state.waiting.end(), [&](const Waiting& w) { return is_it(w.ticket); }) ||
        std::any_of(state.inits.begin(), state.inits.end(), is_it);
    if (!waits) continue;
    const std::string key = "key \"" + state.name + "\"";
    if (state.key == nullptr && !state.is_declared)
      return key + " is not known: nobody has declared it by an init or a push";
    if (state.key == nullptr)
      return key + " waits to be declared by " + options_.authority + ", who decides about keys";
    return key + " waits for the first push or the leave of " + options_.authority + ", which ends configuring";
  }
  return "";
}

void Worker::declare(State& state, const Tensor& tensor, bool has_initial) {
  if (state.is_declared) return;
  state.is_declared = true;
  KeySpec spec;
  spec.name = tensor.name;
  spec.id = key_id(tensor.name);
  spec.shape = tensor.shape;
  spec.dtype = tensor.dtype;
  spec.has_initial = has_initial;
  if (options_.is_authority) {
    Plan plan;
    if (Status status = planner_(spec, options_.num_global_servers, &plan); !status.ok())
      return side_.fail("key \"" + spec.name + "\": " + status.message());
    spec.shards = std::move(plan.shards);
    spec.part_length = plan.part_length;
  }
  directory_.request(Directory::declare(spec, options_.is_authority, options_.name));
}

void Worker::init(const std::vector<Tensor>& tensors, const TicketPtr& ticket) {
  track(ticket);
  ticket->expect(tensors.size() + 1);  // one more, so that a call with no tensors is done too
  for (const Tensor& tensor : tensors) {
    State& state = state_of(tensor.name);
    if (state.key != nullptr && state.is_declared) {
      const Status status = check(state, tensor, true);
      status.ok() ? ticket->complete_one() : ticket->fail(status.message());
      continue;
    }
    state.inits.push_back(ticket);
    if (options_.is_authority) state.initial = Bytes::copy(tensor.data, tensor.num_bytes());
    declare(state, tensor, true);
  }
  ticket->complete_one();
}

void Worker::push(const std::vector<Tensor>& tensors, const TicketPtr& ticket) {
  track(ticket);
  ticket->expect(tensors.size() + 1);  // one more, so that a call with no tensors is done too
  if (is_leaving_) return ticket->fail(ticket->text() + ": " + options_.name + " has left");
  for (const Tensor& tensor : tensors) {
    State& state = state_of(tensor.name);
    if (state.key == nullptr) declare(state, tensor, false);
    enqueue(state, true, ticket, [this, &state, tensor, ticket] { push_now(state, tensor, ticket); });
  }
  if (options_.is_authority) seal();
  ticket->complete_one();
}

void Worker::pull(const std::vector<Tensor>& tensors, const TicketPtr& ticket) {
  track(ticket);
  ticket->expect(tensors.size() + 1);  // one more, so that a call with no tensors is done too
  for (const Tensor& tensor : tensors) {
    State& state = state_of(tensor.name);
    enqueue(state, false, ticket, [this, &state, tensor, ticket] { pull_now(state, tensor, ticket); });
  }
  ticket->complete_one();
}

void Worker::enqueue(State& state, bool needs_seal, const TicketPtr& ticket, Operation operation) {
  if (state.waiting.empty() && state.key != nullptr && (is_sealed_ || !needs_seal)) return operation();
  state.waiting.push_back({needs_seal, ticket, std::move(operation)});
}

void Worker::run_waiting(State& state) {
  while (!state.waiting.empty() && state.key != nullptr && (is_sealed_ || !state.waiting.front().needs_seal)) {
    const Operation operation = std::move(state.waiting.front().operation);
    state.waiting.pop_front();
    operation();
  }
}

void Worker::seal() {
  if (has_asked_for_seal_) return;
  has_asked_for_seal_ = true;
  directory_.request(Frame(FrameKind::seal));
}

void Worker::on_spec(const Key& key) {
  State& state = state_of(key.spec.name);
  finish_init(state);
  run_waiting(state);
  leave_if_idle();
}

void Worker::on_sealed() {
  is_sealed_ = true;
  for (auto& [id, state] : states_) run_waiting(state);
  leave_if_idle();
}

void Worker::finish_init(State& state) {
  const Key& key = *state.key;
  if (options_.is_authority && !state.inits.empty()) {
    const size_t width = size_of(key.spec.dtype);
    for (uint32_t part = 0; part < key.parts.size(); ++part)
      client_.send_initial(key.spec.index, part,
                           state.initial.slice(key.parts[part].offset * width, key.parts[part].length * width));
  }
  state.initial = Bytes();
  for (const TicketPtr& ticket : state.inits) ticket->complete_one();
  state.inits.clear();
}

// A value may come in another shape of the same length; a declaration may not.
Status Worker::check(const State& state, const Tensor& tensor, bool is_declaration) const {
  const KeySpec& spec = state.key->spec;
  const bool fits = is_declaration ? spec.shape == tensor.shape : spec.length() == tensor.length();
  if (spec.dtype == tensor.dtype && fits) return {};
  KeySpec given = spec;
  given.shape = tensor.shape;
  given.dtype = tensor.dtype;
  return Status::error("key \"" + spec.name + "\": expected " + spec.tensor_text() + " as it was declared, but " +
                       options_.name + " gave " + given.tensor_text());
}

void Worker::push_now(State& state, const Tensor& tensor, const TicketPtr& ticket) {
  if (Status status = check(state, tensor); !status.ok()) return ticket->fail(status.message());
  if (options_.is_observer) return ticket->complete_one();
  const Key& key = *state.key;
  ++state.pushed;
  const size_t width = size_of(sum_type(key.spec.dtype));
  const Bytes values =
      from_raw(key.spec.dtype, Bytes::wrap(tensor.data, tensor.num_bytes(), [ticket] { ticket->complete_one(); }));
  for (uint32_t part = 0; part < key.parts.size(); ++part)
    client_.push(key.spec.index, part, values.slice(key.parts[part].offset * width, key.parts[part].length * width),
                 tensor.priority);
}

void Worker::pull_now(State& state, const Tensor& tensor, const TicketPtr& ticket) {
  if (Status status = check(state, tensor); !status.ok()) return ticket->fail(status.message());
  const Key& key = *state.key;
  state.pulls.emplace_back();
  Pull& pull = state.pulls.back();
  pull.out = tensor;
  pull.min_round = state.pushed;
  pull.parts_missing = uint32_t(key.parts.size());
  pull.is_filled.resize(key.parts.size());
  pull.ticket = ticket;
  for (uint32_t part = 0; part < key.parts.size(); ++part) {
    Kept& kept = state.parts[part];
    const bool is_new_enough = kept.is_here && kept.round >= pull.min_round && !options_.is_observer;
    if (is_new_enough) {
      const bool was_last = fill(key, pull, kept.frame);
      kept.frame = Frame();
      kept.is_here = false;
      if (was_last) return state.pulls.pop_back();
    } else if (options_.is_observer || pull.min_round == 0 || kept.round >= pull.min_round) {
      client_.pull(key.spec.index, part, options_.is_observer ? 0 : pull.min_round);
    }
  }
}

void Worker::take_value(const Frame& frame) {
  const Key* key = side_.keys.find(frame.key);
  State** known = by_index_.find(frame.key);
  if (known == nullptr) return;  // a value for a key that this worker has not touched
  State& state = **known;
  Kept& kept = state.parts[frame.part];
  bool was_pulled = false;
  for (auto pull = state.pulls.begin(); pull != state.pulls.end();) {
    const bool fits = !pull->is_filled[frame.part] && frame.round >= pull->min_round;
    if (fits) was_pulled = true;
    pull = fits && fill(*key, *pull, frame) ? state.pulls.erase(pull) : std::next(pull);
  }
  if (frame.round < kept.round || (frame.round == kept.round && frame.round != 0)) return;
  kept.round = frame.round;
  kept.is_here = !was_pulled;
  kept.frame = was_pulled ? Frame() : frame;
}

// Writes one part into the caller's array; true when it was the pull's last.
bool Worker::fill(const Key& key, Pull& pull, const Frame& frame) {
  const TraceSpan span(side_.trace,
                       side_.event(TraceKind::decode, Direction::down, key.spec.index, frame.part, frame.round));
  const PartSpec& part = key.parts[frame.part];
  const size_t width = size_of(key.spec.dtype);
  Bytes raw = frame.body;
  if (frame.codec != kRawWireId) {
    Bytes values;
    if (Status status = client_.decode(frame, &values); !status.ok()) {
      side_.fail("key \"" + key.spec.name + "\": " + status.message());
      return false;
    }
    raw = std::move(values);
  }
  KeyWork& work = side_.counters.of(side_.tier).of_key(frame.key);
  const Stopwatch watch(&side_.counters.decode_s, &work.decode_s[size_t(Direction::down)]);
  if (frame.codec != kRawWireId) raw = to_raw(key.spec.dtype, raw);
  if (raw.size() != part.length * width) {
    side_.fail("key \"" + key.spec.name + "\": expected a part of " + std::to_string(part.length * width) +
               " bytes but got " + std::to_string(raw.size()));
    return false;
  }
  if (!raw.empty()) std::memcpy(static_cast<uint8_t*>(pull.out.data) + part.offset * width, raw.data(), raw.size());
  pull.is_filled[frame.part] = true;
  if (--pull.parts_missing != 0) return false;
  pull.ticket->complete_one();
  return true;
}

// The authority's leave ends configuring too: nobody must wait for a push that won't come.
void Worker::leave(const TicketPtr& ticket) {
  track(ticket);
  ticket->expect();
  is_leaving_ = true;
  leaving_ = ticket;
  if (options_.is_authority) seal();
  leave_if_idle();
}

// Once nothing waits for a key or the seal any more; the client then waits for its answers.
void Worker::leave_if_idle() {
  if (!leaving_) return;
  for (const auto& [id, state] : states_)
    if (!state.waiting.empty() || !state.inits.empty()) return;
  client_.leave([ticket = std::move(leaving_)] { ticket->complete_one(); });
  leaving_ = nullptr;
}

}  // namespace geomx
