#include "base/result.h"

namespace tandem {

std::string_view name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Invalid: return "Invalid";
    case ErrorKind::Unsupported: return "Unsupported";
    case ErrorKind::NotFound: return "NotFound";
    case ErrorKind::Capacity: return "Capacity";
    case ErrorKind::Overloaded: return "Overloaded";
    case ErrorKind::Duplicate: return "Duplicate";
    case ErrorKind::NotHeld: return "NotHeld";
    case ErrorKind::Corrupt: return "Corrupt";
    case ErrorKind::Protocol: return "Protocol";
    case ErrorKind::Device: return "Device";
    case ErrorKind::Io: return "Io";
    case ErrorKind::Deadline: return "Deadline";
    case ErrorKind::Poisoned: return "Poisoned";
    case ErrorKind::Cancelled: return "Cancelled";
  }
  return "?";
}

}  // namespace tandem
