package cache

import (
	"cmp"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// derivedFolder holds the values of derived streams, which the Python package writes.
const derivedFolder = "derived"

// derivedName matches the files of derived streams: values (.bin), their record (.json), and values
// that are being written (robocache-derive-*). The first group is the name of the stream.
var derivedName = regexp.MustCompile(
	`^((?:[0-9a-f]{24}|values)-[0-9a-f]{24}|robocache-derive-\w+)\.(?:bin|json)$`,
)

// unfinishedAge is the age at which unfinished values are considered to have no writer.
const unfinishedAge = time.Hour

// derivedStream describes the files of one derived stream.
type derivedStream struct {
	names []string // paths in the directory of the cache
	bytes int64    // on disk
	used  int64    // Unix time in nanoseconds
}

// listDerived lists the derived streams, the least recently used first.
func (d *Dir) listDerived() []derivedStream {
	info, err := d.root.Lstat(derivedFolder)
	if err != nil || !info.IsDir() {
		return nil
	}
	folder, err := d.root.Open(derivedFolder)
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1)
	streams := map[string]*derivedStream{}
	for _, name := range names {
		match := derivedName.FindStringSubmatch(name)
		if match == nil {
			continue
		}
		full := path.Join(derivedFolder, name)
		info, err := d.root.Lstat(full)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		isUnfinished := strings.HasPrefix(name, "robocache-")
		if isUnfinished && time.Since(info.ModTime()) < unfinishedAge {
			continue // another process may still write these values
		}
		s := streams[match[1]]
		if s == nil {
			s = &derivedStream{}
			streams[match[1]] = s
		}
		s.names = append(s.names, full)
		s.bytes += allocatedBytes(info)
		s.used = max(s.used, info.ModTime().UnixNano())
	}
	var all []derivedStream
	for _, s := range streams {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b derivedStream) int {
		return cmp.Or(cmp.Compare(a.used, b.used), slices.Compare(a.names, b.names))
	})
	return all
}

// pruneDerived removes derived streams, the least recently used first, until they and the shards fit
// into budget. Before it removes a stream, it subtracts the shards that were used before the stream,
// because the caller evicts them afterwards. It adds the removed streams to p and returns the size
// of the others in bytes.
func (d *Dir) pruneDerived(files []cacheFile, budget int64, p *Pruned) (left int64) {
	total := totalSize(files) // shards that are not yet subtracted
	shards := slices.SortedFunc(slices.Values(files), func(a, b cacheFile) int {
		return cmp.Compare(a.used, b.used)
	})
	streams := d.listDerived()
	for _, s := range streams {
		left += s.bytes
	}
	for _, s := range streams {
		for len(shards) > 0 && shards[0].used < s.used && total+left > budget {
			total -= shards[0].size
			shards = shards[1:]
		}
		if total+left <= budget {
			break
		}
		var err error
		for _, name := range s.names {
			err = cmp.Or(err, d.root.Remove(name))
		}
		if err == nil || os.IsNotExist(err) {
			left -= s.bytes
			p.RemovedDerived++
			p.RemovedBytes += s.bytes
		}
	}
	return left
}
