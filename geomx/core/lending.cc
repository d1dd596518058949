// See lending.h.
#include "lending.h"

#include <cstring>
#include <mutex>

namespace geomx {
namespace {

constexpr size_t kSharedFromBytes = 32 << 10;   // smaller attachments are quicker through the socket
constexpr uint64_t kMaxMappedBytes = 64 << 20;  // of others' memory, while nobody looks at it

}  // namespace

// ---- own memory ----------------------------------------------------------------------------------------------------

Lender::Lender(Loop& loop, bool is_memory_shared)
    : loop_(loop), mapped_pages_(std::make_shared<MappedPages>(kMaxMappedBytes)) {
  if (is_memory_shared) arena_ = Arena::create();
}

std::unique_ptr<ForeignMemory> Lender::open(const MemoryOffer& theirs) const {
  return is_there() ? ForeignMemory::open(theirs, mapped_pages_) : nullptr;
}

bool Lender::lend(Bytes* bytes, BlockReference* block) {
  if (bytes->size() < kSharedFromBytes) return false;
  if (!arena_->find(*bytes, &block->fd, &block->offset)) {
    Bytes copy = shared_copy(*bytes);
    if (!arena_->find(copy, &block->fd, &block->offset)) return false;
    *bytes = std::move(copy);
  }
  block->loan = ++last_loan_;
  block->size = bytes->size();
  return true;
}

Bytes Lender::shared_copy(const Bytes& bytes) {
  for (const auto& [source, copy] : copies_) {
    if (source.data() == bytes.data() && source.size() == bytes.size()) return copy;
  }
  Bytes copy = arena_->allocate(bytes.size());
  std::memcpy(copy.writable(), bytes.data(), bytes.size());
  if (copies_.empty()) {
    loop_.post([this, is_alive = is_alive_] {
      if (*is_alive) copies_.clear();
    });
  }
  copies_.emplace_back(bytes, copy);
  return copy;
}

// ---- with one peer -------------------------------------------------------------------------------------------------

// Loans that the node has dropped, on any thread, until they are given back.
struct Loans::ReturnQueue : std::enable_shared_from_this<ReturnQueue> {
  ReturnQueue(Loop& its_loop, Loans* its_owner) : loop(its_loop), owner(its_owner) {}
  Loop& loop;
  std::mutex mutex;  // guards what follows
  std::vector<uint64_t> loans;
  Loans* owner;  // null once it is closed

  void add(uint64_t loan) {
    std::lock_guard<std::mutex> lock(mutex);
    if (owner == nullptr) return;
    loans.push_back(loan);
    if (loans.size() > 1) return;  // the flush that the first one asked for takes this one too
    loop.post([self = shared_from_this()] {
      Loans* flushed;
      {
        std::lock_guard<std::mutex> inner(self->mutex);
        flushed = self->owner;  // closed on this same thread, so it stays what it is
      }
      if (flushed != nullptr) flushed->flush_returns();
    });
  }
};

Loans::Loans(Lender& lender, Loop& loop, std::function<void(const Returns&)> give_back)
    : lender_(lender), give_back_(std::move(give_back)), returns_(std::make_shared<ReturnQueue>(loop, this)) {}

void Loans::close() {
  std::lock_guard<std::mutex> lock(returns_->mutex);
  returns_->owner = nullptr;
}

Bytes Loans::allocate(size_t size) {
  return size >= kSharedFromBytes && can_read_ours_ ? lender_.allocate(size) : Bytes::allocate(size);
}

Bytes Loans::lend(Message* message) {
  if (!can_read_ours_) return Bytes();
  Blocks lent;
  std::vector<Bytes> others;
  for (size_t i = 0; i < message->attachments.size(); ++i) {
    Bytes& bytes = message->attachments[i];
    BlockReference block;
    if (!lender_.lend(&bytes, &block)) {
      others.push_back(std::move(bytes));
      continue;
    }
    block.attachment = static_cast<uint32_t>(i);
    lent.blocks.push_back(block);
    lent_.emplace(block.loan, std::move(bytes));
  }
  message->attachments = std::move(others);
  return lent.blocks.empty() ? Bytes() : pack(lent);
}

void Loans::take_back(const Returns& returns) {
  for (uint64_t loan : returns.loans) lent_.erase(loan);
}

// The attachments that lie in shared memory take their places among those that came through the socket.
Status Loans::borrow(const Bytes& reference, const Bytes& head, const std::vector<Bytes>& others, Message* message) {
  const auto parsed = parse_blocks(reference);
  if (!parsed || theirs_ == nullptr) return Status::error("a malformed reference to shared memory");
  message->head = head;
  size_t next_other = 0, next_block = 0;
  while (next_block < parsed->blocks.size() || next_other < others.size()) {
    const size_t place = message->attachments.size();
    if (next_block < parsed->blocks.size() && parsed->blocks[next_block].attachment == place) {
      const BlockReference& block = parsed->blocks[next_block++];
      Bytes view;
      const auto release = [returns = returns_, loan = block.loan] { returns->add(loan); };
      const Status status = theirs_->view(block, release, &view);
      if (!status.ok()) return status;
      message->attachments.push_back(std::move(view));
    } else if (next_other < others.size()) {
      message->attachments.push_back(others[next_other++]);
    } else {
      return Status::error("a reference to shared memory for attachment " +
                           std::to_string(parsed->blocks[next_block].attachment) + " of " + std::to_string(place));
    }
  }
  return {};
}

void Loans::flush_returns() {
  Returns returns;
  {
    std::lock_guard<std::mutex> lock(returns_->mutex);
    returns.loans.swap(returns_->loans);
  }
  if (!returns.loans.empty()) give_back_(returns);
}

}  // namespace geomx
