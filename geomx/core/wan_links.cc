// See wan_links.h.
#include "wan_links.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace geomx {
namespace {

constexpr uint64_t kMagic = 0x314b4e494c57'5847;  // "GXWLINK1"
constexpr size_t kHeader = 3, kStride = 16;       // words; a link's two directions each have a cache line

}  // namespace

// Words of 64 bits: magic, parties, origin, then a cache line (8 words) for each direction of each link.
struct WanLinks::Table {
  std::atomic<uint64_t> words[1];
  static size_t num_words(uint32_t num_parties) { return 8 + kStride * num_parties; }
  std::atomic<uint64_t>& of(uint32_t party, LinkSide side) {
    return words[8 + kStride * party + (side == LinkSide::up ? 0 : 8)];
  }
};

const WanTraceRow* WanShape::row_at(uint64_t since_us) const {
  const WanTraceRow* found = nullptr;
  for (const WanTraceRow& row : trace)
    if (row.at_us <= since_us || found == nullptr) found = &row;
  return found;
}

double WanShape::rate_at(uint64_t since_us, uint32_t party, LinkSide side) const {
  if (const WanTraceRow* now = row_at(since_us)) return now->bytes_per_s;
  double share = 1;
  for (const WanShare& change : shares)
    if (change.party == party && change.at_us <= since_us) share = change.share;
  return share * (side == LinkSide::up ? up_bytes_per_s : down_bytes_per_s)[party];
}

std::shared_ptr<WanLinks> WanLinks::make(uint32_t num_parties, uint64_t origin_us) {
  std::shared_ptr<WanLinks> made(new WanLinks);
  made->own_.assign(Table::num_words(num_parties), 0);
  made->own_[2] = origin_us;
  static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
  made->table_ = reinterpret_cast<Table*>(made->own_.data());
  return made;
}

Status WanLinks::create(const std::string& file, uint32_t num_parties, uint64_t origin_us) {
  std::vector<uint64_t> words(Table::num_words(num_parties), 0);
  words[0] = kMagic;
  words[1] = num_parties;
  words[2] = origin_us;
  static_assert(kHeader == 3);
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const ssize_t size = ssize_t(words.size() * sizeof(uint64_t));
  const bool is_written = fd >= 0 && write(fd, words.data(), size_t(size)) == size;
  const int error = errno;
  if (fd >= 0) close(fd);
  return is_written ? Status() : Status::error("the links' file " + file + " can't be made: " + std::strerror(error));
}

Status WanLinks::open(const std::string& file, uint32_t num_parties, std::shared_ptr<WanLinks>* out) {
  const std::string why = "the WAN is shaped through the file " + file + ", which ";
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    return Status::error(why + "can't be opened here (" + std::strerror(errno) +
                         "): all nodes must be on the launcher's host, or use network=none");
  struct stat facts;
  const size_t size = Table::num_words(num_parties) * sizeof(uint64_t);
  void* start = MAP_FAILED;
  if (fstat(fd, &facts) == 0 && size_t(facts.st_size) == size)
    start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (start == MAP_FAILED) return Status::error(why + "has another size than " + std::to_string(size) + " bytes");
  std::shared_ptr<WanLinks> made(new WanLinks);
  made->table_ = static_cast<Table*>(start);
  made->mapped_bytes_ = size;
  if (made->table_->words[0] != kMagic || made->table_->words[1] != num_parties)
    return Status::error(why + "is none of ours");
  *out = std::move(made);
  return {};
}

WanLinks::~WanLinks() {
  if (mapped_bytes_ != 0) munmap(table_, mapped_bytes_);
}

WanLinks::Taken WanLinks::take(uint32_t party, LinkSide side, uint64_t from_us, double bytes, double bytes_per_s) {
  if (bytes_per_s <= 0) return {from_us, from_us};
  // Nanoseconds, so that what rounding costs does not add up over small messages.
  const uint64_t from_ns = from_us * 1000, length_ns = uint64_t(bytes / bytes_per_s * 1e9);
  std::atomic<uint64_t>& free = table_->of(party, side);
  uint64_t before = free.load(), begin_ns;
  do {
    begin_ns = std::max(before, from_ns);
  } while (!free.compare_exchange_weak(before, begin_ns + length_ns));
  return {begin_ns / 1000, (begin_ns + length_ns) / 1000};
}

uint64_t WanLinks::busy_until_us(uint32_t party, LinkSide side) const { return table_->of(party, side).load() / 1000; }

uint64_t WanLinks::origin_us() const { return table_->words[2].load(); }

bool LossProcess::is_lost(double loss, double burst, std::mt19937_64& random) {
  if (loss <= 0) return is_bad_ = false;
  if (loss >= 1) return is_bad_ = true;
  std::uniform_real_distribution<double> chance(0, 1);
  if (burst <= 1) return chance(random) < loss;
  const double leaves_bad = 1 / burst, enters_bad = loss / ((1 - loss) * burst);
  is_bad_ = is_bad_ ? chance(random) >= leaves_bad : chance(random) < enters_bad;
  return is_bad_;
}

}  // namespace geomx
