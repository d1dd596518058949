// Memory that processes of one host share: an arena of one's own, in anonymous files that vanish with the processes,
// and read-only views of others' arenas, which are opened through /proc. Nothing is left behind however they end.
//
// Knows no sockets: lending.h makes references, zmq_peer.cc carries them. All functions may be called from any thread,
// except those of ForeignMemory, which belongs to one.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "buffer.h"
#include "handshake.h"
#include "status.h"

namespace geomx {

// Memory of this process that others may read. Blocks keep it alive; freed ones are used again, lowest first, so that
// pages which were touched once are not faulted in again.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Null where the kernel doesn't let us; everything then goes over TCP.
  static std::shared_ptr<Arena> create();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const MemoryOffer& offer() const { return offer_; }
  // Uninitialised, page-aligned. Ordinary memory when the arena can't grow.
  Bytes allocate(size_t size);
  // Where these bytes lie in the arena, if they do.
  bool find(const Bytes& bytes, int32_t* fd, uint64_t* offset) const;
  size_t used_bytes() const;

 private:
  struct Segment {
    int fd;
    uint8_t* start;
    uint64_t size;
    std::map<uint64_t, uint64_t> free;  // offset -> size, never adjacent
  };
  struct Block;

  Arena() = default;
  bool take(size_t segment, uint64_t size, uint64_t* offset);
  bool grow(uint64_t size);
  void give_back(size_t segment, uint64_t offset, uint64_t size);

  MemoryOffer offer_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Segment> segments_;
  uint64_t next_segment_size_ = uint64_t{4} << 20;
  uint64_t used_bytes_ = 0;
};

// How much of others' memory a node keeps mapped while it doesn't look at it. The kernel counts mapped pages as the
// node's own; unmapping all of them would cost a third of the speed, since the same blocks come again every round.
struct MappedPages {
  explicit MappedPages(uint64_t most_bytes) : most(most_bytes / page_bytes) {}
  static constexpr uint64_t page_bytes = 4096;
  const uint64_t most;
  std::mutex mutex;  // guards what is kept, here and in the mappings
  uint64_t kept = 0;
};

// Another process's arena, as far as it was needed so far.
class ForeignMemory {
 public:
  // Null: that process isn't on this host, or may not be looked at.
  static std::unique_ptr<ForeignMemory> open(const MemoryOffer& offer, std::shared_ptr<MappedPages> pages);

  // `release` is called when the last view of the block is dropped, on whichever thread drops it. Views stay valid
  // after the other process has ended.
  Status view(const BlockReference& block, std::function<void()> release, Bytes* out);

 private:
  struct Mapping;

  ForeignMemory(uint32_t pid, std::shared_ptr<MappedPages> pages) : pid_(pid), pages_(std::move(pages)) {}
  Status map(int32_t fd, std::shared_ptr<Mapping>* out);

  uint32_t pid_;
  std::shared_ptr<MappedPages> pages_;
  std::map<int32_t, std::shared_ptr<Mapping>> mappings_;
};

// Lets malloc keep large blocks that are freed, instead of returning them to the kernel and faulting them in again for
// the next message. Once for the process.
void keep_large_blocks();

}  // namespace geomx
