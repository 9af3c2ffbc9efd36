// Names of log files.
#ifndef FILA_LOG_NAMES_H
#define FILA_LOG_NAMES_H

#include <cstdint>
#include <cstdlib>
#include <string>

// Returns the number in the name of a log, which may have a directory before it, 0 for other names.
inline uint64_t LogNumber(const std::string& path) {
	const std::string name = path.substr(path.rfind('/') + 1);
	if (name.size() < 5 || name.compare(name.size() - 4, 4, ".log") != 0) return 0;
	char* end = nullptr;
	const uint64_t n = strtoull(name.c_str(), &end, 10);
	return end == name.c_str() + name.size() - 4 ? n : 0;
}

#endif
