// See shared_memory.h.
#include "shared_memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace geomx {

namespace {

constexpr uint64_t page = 4096;
constexpr uint64_t largest_step = uint64_t{64} << 20;
// Sealed against shrinking, or a reader would be killed by SIGBUS when the owner cuts the file.
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr char memory_name[] = "geomx";

std::array<uint8_t, 16> boot_id() {
  std::array<uint8_t, 16> id{};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  file >> text;
  text.erase(std::remove(text.begin(), text.end(), '-'), text.end());
  if (text.size() != 2 * id.size()) return {};
  for (size_t i = 0; i < id.size(); ++i) {
    id[i] = static_cast<uint8_t>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return id;
}

int make_file(uint64_t size) {
  const int fd = memfd_create(memory_name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(size)) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0) return fd;
  close(fd);
  return -1;
}

// A file of another process; only one of ours is opened at all.
int open_file_of(uint32_t pid, int32_t fd) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  char target[64];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  const std::string expected = std::string("/memfd:") + memory_name + " (deleted)";
  if (length < 0 || std::string(target, static_cast<size_t>(length)) != expected) return -1;
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

}  // namespace

// ---- one's own -----------------------------------------------------------------------------------------------------

struct Arena::Block {
  std::shared_ptr<Arena> arena;
  size_t segment;
  uint64_t offset, size;
  ~Block() { arena->give_back(segment, offset, size); }
};

std::shared_ptr<Arena> Arena::create() {
  std::shared_ptr<Arena> arena(new Arena());
  MemoryOffer& offer = arena->offer_;
  offer.host = boot_id();
  offer.pid = static_cast<uint32_t>(getpid());
  const bool has_nonce = getrandom(offer.nonce.data(), offer.nonce.size(), 0) == ssize_t{16};
  const int fd = has_nonce && offer.host != std::array<uint8_t, 16>{} ? make_file(page) : -1;
  if (fd < 0) return nullptr;
  offer.fd = fd;
  if (pwrite(fd, offer.nonce.data(), offer.nonce.size(), 0) != ssize_t{16}) return nullptr;
  return arena;
}

Arena::~Arena() {
  for (const Segment& segment : segments_) {
    munmap(segment.start, segment.size);
    close(segment.fd);
  }
  if (offer_.fd >= 0) close(offer_.fd);
}

Bytes Arena::allocate(size_t size) {
  if (size == 0) return {};
  const uint64_t rounded = (size + page - 1) / page * page;
  std::lock_guard<std::mutex> lock(mutex_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (size_t i = 0; i < segments_.size(); ++i) {
      uint64_t offset;
      if (!take(i, rounded, &offset)) continue;
      used_bytes_ += rounded;
      std::shared_ptr<Block> block(new Block{shared_from_this(), i, offset, rounded});
      return Bytes(std::move(block), segments_[i].start + offset, size);
    }
    if (attempt == 0 && !grow(rounded)) break;
  }
  return Bytes::allocate(size);
}

bool Arena::take(size_t segment, uint64_t size, uint64_t* offset) {
  std::map<uint64_t, uint64_t>& free = segments_[segment].free;
  for (auto range = free.begin(); range != free.end(); ++range) {
    if (range->second < size) continue;
    *offset = range->first;
    const uint64_t rest = range->second - size;
    free.erase(range);
    if (rest != 0) free.emplace(*offset + size, rest);
    return true;
  }
  return false;
}

bool Arena::grow(uint64_t size) {
  const uint64_t segment_size = std::max(size, next_segment_size_);
  const int fd = make_file(segment_size);
  if (fd < 0) return false;
  void* start = mmap(nullptr, segment_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (start == MAP_FAILED) {
    close(fd);
    return false;
  }
  segments_.push_back({fd, static_cast<uint8_t*>(start), segment_size, {{0, segment_size}}});
  next_segment_size_ = std::min(2 * next_segment_size_, largest_step);
  return true;
}

void Arena::give_back(size_t segment, uint64_t offset, uint64_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  used_bytes_ -= size;
  std::map<uint64_t, uint64_t>& free = segments_[segment].free;
  const auto after = free.lower_bound(offset);
  if (after != free.end() && after->first == offset + size) {
    size += after->second;
    free.erase(after);
  }
  const auto next = free.lower_bound(offset);
  if (next != free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free.emplace(offset, size);
}

bool Arena::find(const Bytes& bytes, int32_t* fd, uint64_t* offset) const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Segment& segment : segments_) {
    if (bytes.data() < segment.start || bytes.data() >= segment.start + segment.size) continue;
    *fd = segment.fd;
    *offset = static_cast<uint64_t>(bytes.data() - segment.start);
    return true;
  }
  return false;
}

size_t Arena::used_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

// ---- others' -------------------------------------------------------------------------------------------------------

// A process in another network namespace is meant to be elsewhere: what goes there goes over that network.
static bool shares_network_with(uint32_t pid) {
  struct stat own, other;
  const std::string file = "/proc/" + std::to_string(pid) + "/ns/net";
  const bool is_known = stat("/proc/self/ns/net", &own) == 0 && stat(file.c_str(), &other) == 0;
  return !is_known || (own.st_ino == other.st_ino && own.st_dev == other.st_dev);
}

struct ForeignMemory::Mapping {
  uint8_t* start;
  uint64_t size;
  std::shared_ptr<MappedPages> pages;
  std::vector<bool> is_kept;  // a page each

  Mapping(uint8_t* at, uint64_t bytes, std::shared_ptr<MappedPages> counted)
      : start(at), size(bytes), pages(std::move(counted)), is_kept(bytes / MappedPages::page_bytes + 1) {}
  ~Mapping() {
    munmap(start, size);
    const std::lock_guard<std::mutex> lock(pages->mutex);
    pages->kept -= static_cast<uint64_t>(std::count(is_kept.begin(), is_kept.end(), true));
  }
  // Nobody looks at this block any more: it stays mapped where there is room for it.
  void leave(uint64_t offset, uint64_t length) {
    const std::lock_guard<std::mutex> lock(pages->mutex);
    const auto begin = is_kept.begin() + static_cast<ptrdiff_t>(offset / MappedPages::page_bytes);
    const auto end = is_kept.begin() + static_cast<ptrdiff_t>((offset + length - 1) / MappedPages::page_bytes + 1);
    const auto known = static_cast<uint64_t>(std::count(begin, end, true));
    const auto all = static_cast<uint64_t>(end - begin);
    const bool has_room = pages->kept - known + all <= pages->most;
    if (!has_room) madvise(start + offset, length, MADV_DONTNEED);  // blocks begin with a page
    std::fill(begin, end, has_room);
    pages->kept = pages->kept - known + (has_room ? all : 0);
  }
};

std::unique_ptr<ForeignMemory> ForeignMemory::open(const MemoryOffer& offer, std::shared_ptr<MappedPages> pages) {
  if (offer.fd < 0 || offer.host != boot_id() || !shares_network_with(offer.pid)) return nullptr;
  const int fd = open_file_of(offer.pid, offer.fd);
  if (fd < 0) return nullptr;
  // Process numbers differ between containers: the nonce says that it is the right process.
  std::array<uint8_t, 16> nonce{};
  const bool is_read = pread(fd, nonce.data(), nonce.size(), 0) == ssize_t{16};
  close(fd);
  if (!is_read || nonce != offer.nonce) return nullptr;
  return std::unique_ptr<ForeignMemory>(new ForeignMemory(offer.pid, std::move(pages)));
}

Status ForeignMemory::map(int32_t fd, std::shared_ptr<Mapping>* out) {
  const auto known = mappings_.find(fd);
  if (known != mappings_.end()) {
    *out = known->second;
    return {};
  }
  const int file = open_file_of(pid_, fd);
  if (file < 0) return Status::error("memory of process " + std::to_string(pid_) + " can't be opened any more");
  struct stat facts;
  void* start = MAP_FAILED;
  uint64_t size = 0;
  if (fstat(file, &facts) == 0 && (fcntl(file, F_GET_SEALS) & F_SEAL_SHRINK) != 0) {
    size = static_cast<uint64_t>(facts.st_size);
    start = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  }
  close(file);
  if (start == MAP_FAILED) return Status::error("memory of process " + std::to_string(pid_) + " can't be mapped");
  *out = mappings_[fd] = std::make_shared<Mapping>(static_cast<uint8_t*>(start), size, pages_);
  return {};
}

Status ForeignMemory::view(const BlockReference& block, std::function<void()> release, Bytes* out) {
  struct Lease {
    std::shared_ptr<Mapping> mapping;
    std::function<void()> release;
    uint64_t offset, size;
    ~Lease() {
      if (size != 0) mapping->leave(offset, size);
      release();
    }
  };
  std::shared_ptr<Mapping> mapping;
  Status status = map(block.fd, &mapping);
  if (!status.ok()) return status;
  if (block.offset > mapping->size || block.size > mapping->size - block.offset) {
    return Status::error("expected a block within " + std::to_string(mapping->size) +
                         " bytes of shared memory but got " + std::to_string(block.size) + " from " +
                         std::to_string(block.offset));
  }
  uint8_t* start = mapping->start + block.offset;
  std::shared_ptr<Lease> lease(new Lease{std::move(mapping), std::move(release), block.offset, block.size});
  *out = Bytes(std::move(lease), start, block.size, true);
  return {};
}

void keep_large_blocks() {
  static std::once_flag once;
  std::call_once(once, [] {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
  });
}

}  // namespace geomx
