// Large attachments between processes of one host: they lie in shared memory, and a reference to them goes before their
// message. What is lent is kept until the peer returns it, once nobody there looks at it any more.
//
// Knows messages and memory, not how references and returns travel. Lives on the loop's thread; views of borrowed
// memory may be dropped on any.
#pragma once
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "handshake.h"
#include "loop.h"
#include "shared_memory.h"
#include "transport.h"

namespace geomx {

// A transport's own memory that it lends.
class Lender {
 public:
  Lender(Loop& loop, bool is_memory_shared);
  ~Lender() { *is_alive_ = false; }

  bool is_there() const { return arena_ != nullptr; }
  MemoryOffer offer() const { return is_there() ? arena_->offer() : MemoryOffer(); }
  size_t used_bytes() const { return is_there() ? arena_->used_bytes() : 0; }
  Bytes allocate(size_t size) { return arena_->allocate(size); }
  // Makes a loan of bytes that are large, in a copy where they lie elsewhere. False: they are to be sent.
  bool lend(Bytes* bytes, BlockReference* block);
  // Another's memory; null where it can't be read or ours isn't there.
  std::unique_ptr<ForeignMemory> open(const MemoryOffer& theirs) const;

 private:
  Bytes shared_copy(const Bytes& bytes);

  Loop& loop_;
  std::shared_ptr<Arena> arena_;  // null: none is shared
  std::shared_ptr<MappedPages> mapped_pages_;
  uint64_t last_loan_ = 0;
  std::vector<std::pair<Bytes, Bytes>> copies_;  // of this turn: what goes to many peers is copied once
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
};

// What one peer was lent, and what it lends.
class Loans {
 public:
  // give_back: to tell the peer of what it lent and nobody here looks at any more.
  Loans(Lender& lender, Loop& loop, std::function<void(const Returns&)> give_back);
  ~Loans() { close(); }
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  // Their memory, and whether they read ours.
  void open(const MemoryOffer& theirs) { theirs_ = lender_.open(theirs); }
  void set_readable_there(bool is_readable) { can_read_ours_ = is_readable && lender_.is_there(); }
  bool can_read_theirs() const { return theirs_ != nullptr; }
  bool can_read_ours() const { return can_read_ours_; }

  Bytes allocate(size_t size);
  // Takes the large attachments out of a message. The reference to them; empty: there were none.
  Bytes lend(Message* message);
  void take_back(const Returns& returns);
  void forget() { lent_.clear(); }
  // Makes the message of a reference to its large attachments, its head and its other attachments.
  Status borrow(const Bytes& reference, const Bytes& head, const std::vector<Bytes>& others, Message* message);
  void close();  // nothing is given back any more

 private:
  struct ReturnQueue;
  void flush_returns();

  Lender& lender_;
  std::function<void(const Returns&)> give_back_;
  bool can_read_ours_ = false;
  std::unique_ptr<ForeignMemory> theirs_;
  std::unordered_map<uint64_t, Bytes> lent_;
  std::shared_ptr<ReturnQueue> returns_;
};

}  // namespace geomx
