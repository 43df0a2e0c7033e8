package cache

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
)

// markerName is the file that identifies a cache directory. Its lock is held while space is freed.
const markerName = "robocache-cache.json"

type marker struct {
	Format int    `json:"robocache_cache"`
	ID     string `json:"id"`
	Note   string `json:"note"`
}

// maxMarker is the maximum size of a marker in bytes.
const maxMarker = 4096

// openMarker opens the marker and returns the id of the cache. With write, it creates the marker in
// an empty directory.
func openMarker(root *os.Root, dir string, write bool) (f *os.File, id uint64, err error) {
	flag := os.O_RDWR
	if !write {
		flag = os.O_RDONLY
	}
	info, err := root.Lstat(markerName)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !write:
		return nil, 0, robocache.NotFound(
			"open cache",
			robocache.Where{"cache": dir},
			"no cache is here: %s is missing",
			markerName,
		)
	case errors.Is(err, fs.ErrNotExist):
		if err := rejectForeign(root, dir); err != nil {
			return nil, 0, err
		}
		flag |= os.O_CREATE
	case err != nil:
		return nil, 0, systemError("open cache", dir, markerName, err)
	case !info.Mode().IsRegular():
		return nil, 0, markerError(dir, "not a regular file")
	}
	f, err = root.OpenFile(markerName, flag|plainOnly, 0o666)
	if err != nil {
		return nil, 0, systemError("open cache", dir, markerName, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			f = nil
		}
	}()
	if write {
		// Several processes may create the cache at once. The first one to take the lock writes the
		// marker, and the others read it.
		if err := lockWithin(f, openLockLimit); err != nil {
			return f, 0, systemError("lock cache", dir, markerName, err)
		}
		defer unlockFile(f)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxMarker+1))
	if err != nil {
		return f, 0, systemError("open cache", dir, markerName, err)
	}
	if len(text) == 0 && write {
		id, err = writeMarker(f, dir)
		return f, id, err
	}
	id, err = parseMarker(text, dir)
	return f, id, err
}

// parseMarker returns the id of the cache in a marker's text.
func parseMarker(text []byte, dir string) (uint64, error) {
	var m marker
	if len(text) > maxMarker || json.Unmarshal(text, &m) != nil {
		return 0, markerError(dir, "it was not written by RoboCache")
	}
	if m.Format != formatVersion {
		return 0, robocache.Unsupported("open cache", robocache.Where{"cache": dir}, "").
			Expected(fmt.Sprintf("format %d", formatVersion), strconv.Itoa(m.Format)).
			WithHint(
				"another version of RoboCache made it: name another directory with %s",
				robocache.Option("cache"),
			)
	}
	id, err := strconv.ParseUint(m.ID, 16, 64)
	if err != nil || id == 0 || len(m.ID) != 16 {
		return 0, markerError(dir, "its id is not 16 hexadecimal digits")
	}
	return id, nil
}

func markerError(dir, problem string) error {
	return robocache.Malformed("open cache", robocache.Where{
		"cache": dir,
		"file":  markerName,
	}, "%s", problem).
		WithHint("check the content of the directory; RoboCache removes no files from a " +
			"directory without a valid marker")
}

func writeMarker(f *os.File, dir string) (uint64, error) {
	id := randomID()
	err := func() error {
		text, err := json.MarshalIndent(marker{
			Format: formatVersion,
			ID:     fmt.Sprintf("%016x", id),
			Note: "A cache of RoboCache. Files named robocache-ID-* may be removed at any " +
				"time; nothing else here is touched.",
		}, "", "  ")
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(append(text, '\n'), 0); err != nil {
			return err
		}
		return f.Sync()
	}()
	if err != nil {
		// an empty marker is rewritten by the next Open; a partial one would stay malformed
		_ = f.Truncate(0)
		return 0, systemError("make cache", dir, markerName, err)
	}
	return id, nil
}

// rejectForeign returns an error if a directory without a marker is not empty.
func rejectForeign(root *os.Root, dir string) error {
	names, err := listNames(root)
	if err != nil {
		return systemError("open cache", dir, "", err)
	}
	if slices.Contains(names, markerName) {
		return nil // another process created it first
	}
	for _, n := range names {
		// A new volume contains lost+found. The values of derived streams may have been written
		// before the cache was created.
		if n != "lost+found" && n != derivedFolder {
			return robocache.Misuse("open cache", robocache.Where{
				"cache": dir,
			}, "the directory holds other files (%q) and no %s: it is not a cache, and "+
				"RoboCache writes only into its own directories", n, markerName).
				WithHint("name an empty or new directory with %s", robocache.Option("cache"))
		}
	}
	return nil
}

func listNames(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

var errBusy = errors.New("locked by another process")

// lockWithin takes the exclusive lock. It gives up after limit, because a stopped process may hold
// the lock.
func lockWithin(f *os.File, limit time.Duration) error {
	wait := time.Millisecond
	for start := time.Now(); ; {
		ok, err := tryLock(f)
		if ok || err != nil {
			return err
		}
		if time.Since(start) > limit {
			return robocache.Temporary("lock cache", robocache.Where{
				"file": f.Name(),
			}, "another process has held the lock for %s", limit.String()).
				WithCause(errBusy).
				WithHint("find the process with fuser on that file; it may be stopped")
		}
		time.Sleep(wait)
		wait = min(wait*2, 20*time.Millisecond)
	}
}

func randomID() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // crypto/rand never fails
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

const (
	sealedSuffix = ".shard"
	openSuffix   = ".open"
)

func shardFileName(cacheID, shardID uint64, suffix string) string {
	return fmt.Sprintf("robocache-%016x-%016x%s", cacheID, shardID, suffix)
}

// parseShardFileName splits a shard file name. ok reports whether the name belongs to this cache.
func parseShardFileName(name string, cacheID uint64) (shardID uint64, sealed, ok bool) {
	rest, ok := strings.CutPrefix(name, fmt.Sprintf("robocache-%016x-", cacheID))
	if !ok {
		return 0, false, false
	}
	hex, sealed := strings.CutSuffix(rest, sealedSuffix)
	if !sealed {
		if hex, ok = strings.CutSuffix(rest, openSuffix); !ok {
			return 0, false, false
		}
	}
	shardID, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return 0, false, false
	}
	suffix := openSuffix
	if sealed {
		suffix = sealedSuffix
	}
	// ParseUint also accepts other spellings of the number, such as one with capitals.
	if shardFileName(cacheID, shardID, suffix) != name {
		return 0, false, false
	}
	return shardID, sealed, true
}
