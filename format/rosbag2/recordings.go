package rosbag2

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/internal/natural"
	"github.com/goatnote-inc/robocache/format/internal/sqlite"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/format/recindex"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// recording is one bag: its files in order.
type recording struct {
	name  string // folder or file, used in errors
	files []string
	meta  *metadata
	found []robocache.Finding
	// size and version are those of all files. version is "" if they are not known.
	size    int64
	version string
}

// zstdSuffix is the file suffix of FILE compression.
const zstdSuffix = ".zstd"

// splitName matches the name of a split: stem_number.suffix.
var splitName = regexp.MustCompile(`^(.*)_(\d{1,9})\.(db3|mcap)(\.zstd)?$`)

// isStorageName reports whether a name is that of a storage file or of metadata.
func isStorageName(name string) bool {
	plain := strings.TrimSuffix(name, zstdSuffix)
	return path.Base(name) == metadataName || strings.HasSuffix(plain, ".db3") ||
		strings.HasSuffix(plain, ".mcap")
}

// walSuffix is the suffix of the write-ahead log of a database.
const walSuffix = "-wal"

// setVersions sets the sizes and versions of recordings from those of the files in their folders.
// Recordings in one folder share its metadata.yaml, whose content determines their files.
func setVersions(list []recording, versions map[string]store.Entry) {
	for k := range list {
		r := &list[k]
		hash, newest := sha256.New(), int64(0)
		isComplete := len(r.files) > 0
		addFile := func(name string) {
			e, ok := versions[name]
			if ok && e.Version == "" {
				isComplete = false
			}
			r.size += e.Size
			if modified, ok := e.Modified(); ok {
				newest = max(newest, modified)
			}
			fmt.Fprintf(hash, "%q %t %d %q\n", name, ok, e.Size, e.Version)
		}
		for i, name := range r.files {
			if i == 0 {
				addFile(path.Join(path.Dir(name), metadataName))
			}
			_, isListed := versions[name]
			isComplete = isComplete && isListed
			addFile(name)
			addFile(name + walSuffix)
		}
		for _, f := range r.found { // such as a missing split
			fmt.Fprintf(hash, "%s %s\n", f.Code, f.Where)
		}
		if isComplete {
			r.version = hex.EncodeToString(hash.Sum(nil)[:16])
			if newest > 0 { // as the version of a local file, see store.Entry.Modified
				r.version = fmt.Sprintf("%d-%d-%s", r.size, newest, r.version)
			}
		}
	}
}

// findRecordings returns the recordings below a store, and the links that may hide others. hasIndex
// reports whether there is an index of recordings.
func findRecordings(
	ctx context.Context,
	s store.Store,
) (out []recording, links []store.Entry, hasIndex bool, err error) {
	defer crash.Recover("rosbag2 open", &err)
	entries, links, err := store.Files(ctx, s, "", func(name string) bool {
		plain := strings.TrimSuffix(name, walSuffix)
		return name == recindex.Name || isStorageName(name) || plain != name && isStorageName(plain)
	})
	if errors.Is(err, robocache.ErrUnsupported) {
		// A web server cannot list a folder, so the files are taken from the metadata.
		r, failed := recordingFromMetadata(ctx, s, "", nil)
		if failed != nil {
			return out, links, false, failed
		}
		if r == nil {
			err := robocache.NotFound("open", nil, "no rosbag2 metadata.yaml was found")
			return nil, nil, false, err
		}
		return []recording{*r}, nil, false, nil
	}
	if err != nil {
		return out, links, false, err
	}
	folders, meta := map[string][]string{}, map[string]bool{}
	versions := map[string]store.Entry{}
	for _, e := range entries {
		versions[e.Name] = e
		if e.Name == recindex.Name {
			hasIndex = true
		}
		if !isStorageName(e.Name) {
			continue
		}
		dir, base := path.Split(e.Name)
		dir = strings.TrimSuffix(dir, "/")
		files := folders[dir]
		if base == metadataName {
			meta[dir] = true
		} else if e.Size > 0 || e.Err != nil {
			files = append(files, base)
		}
		folders[dir] = files
	}
	for _, dir := range slices.SortedFunc(maps.Keys(folders), natural.Compare) {
		files := folders[dir]
		slices.SortFunc(files, natural.Compare)
		var r *recording
		why := ""
		if meta[dir] {
			err := func() error {
				parsed, err := recordingFromMetadata(ctx, s, dir, files)
				if err != nil {
					return err
				}
				r = parsed
				return nil
			}()
			if why = metadataFault(r, err); why == "" || len(files) == 0 {
				if err := robocache.At(err,
					robocache.Where{"file": path.Join(dir, metadataName)}); err != nil {
					return out, links, false, err
				}
			}
		}
		if r != nil {
			out = append(out, *r)
		} else {
			out = append(out, groupByStem(dir, files, why)...)
		}
	}
	setVersions(out, versions)
	return out, links, hasIndex, nil
}

// metadataFault returns the fault of a metadata.yaml that does not describe a recording. It returns
// "" if the file is valid or could not be read.
func metadataFault(r *recording, err error) string {
	var e *robocache.Error
	switch {
	case err == nil && r == nil:
		return "metadata.yaml is empty, or says nothing of a recording"
	case errors.As(err, &e) && e.Op == "metadata" && e.Msg == notYAML:
		return "metadata.yaml is no YAML: " + e.Err.Error()
	}
	return ""
}

// groupByStem makes recordings from files without metadata. Splits with the same stem belong
// together. why is the fault of the folder's metadata.yaml, or "" if the folder has none.
func groupByStem(dir string, files []string, why string) []recording {
	missing := robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "no-metadata",
		Message: "metadata.yaml is missing: the recorder was killed, or the " +
			"file was moved",
		Hint: "ros2 bag reindex",
	}
	if why != "" {
		missing.Severity = robocache.SeverityWarning
		missing.Message = why + ": the storage files are read without it"
	}
	var out []recording
	at := map[string]int{}
	for _, f := range dropCompressedTwins(files) {
		stem := f
		if m := splitName.FindStringSubmatch(f); m != nil {
			stem = m[1] + "." + m[3]
		}
		k, ok := at[stem]
		if !ok {
			k = len(out)
			at[stem] = k
			name := dir
			if name == "" {
				name = f
			}
			found := missing
			found.Where = robocache.Where{"file": path.Join(dir, f)}
			out = append(out, recording{name: name, found: []robocache.Finding{found}})
		}
		out[k].files = append(out[k].files, path.Join(dir, f))
	}
	return out
}

// dropCompressedTwins removes compressed files whose decompressed file is also listed.
func dropCompressedTwins(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(f string) bool {
		return strings.HasSuffix(f, zstdSuffix) &&
			slices.Contains(files, strings.TrimSuffix(f, zstdSuffix))
	})
}

// recordingFromMetadata returns the recording of a folder with metadata.yaml, or nil if the file is
// not rosbag2 metadata. storageFiles holds the storage files of the folder; it is nil if they are
// unknown.
func recordingFromMetadata(
	ctx context.Context,
	s store.Store,
	dir string,
	storageFiles []string,
) (*recording, error) {
	text, err := store.ReadFile(ctx, s, path.Join(dir, metadataName), metadataLimit)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	folder := path.Base(dir)
	if dir == "" {
		folder = path.Base(strings.TrimRight(s.URI(), "/"))
	}
	m, err := parseMetadata(text, folder)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, nil
	}
	r := &recording{name: dir, meta: m}
	if dir == "" {
		r.name = metadataName
	}
	if m.compression != "" && m.compression != "zstd" {
		return nil, robocache.Unsupported(
			"open",
			nil,
			"compression %q is not read",
			clipText(m.compression),
		).
			WithHint("zstd is")
	}
	for _, text := range m.wrongTypes {
		r.found = append(r.found, robocache.Finding{
			Severity: robocache.SeverityWarning, Code: "bad-metadata",
			Where:   robocache.Where{"file": path.Join(dir, metadataName)},
			Message: "metadata.yaml: " + text + ": the value is not read", Hint: "ros2 bag reindex",
		})
	}
	storageFiles = dropCompressedTwins(storageFiles)
	listed := map[string]bool{}
	for _, f := range m.files {
		name := ""
		for _, n := range []string{
			f,
			strings.TrimSuffix(f, zstdSuffix),
			f + zstdSuffix,
			path.Base(f),
			path.Base(f) + zstdSuffix,
		} {
			if listed[n] {
				continue
			}
			// A name that is not a regular file is kept, so that opening it returns the error.
			if _, err := s.Stat(ctx, path.Join(dir, n)); err == nil ||
				errors.Is(err, robocache.ErrMalformed) {
				name = n
				break
			} else if !errors.Is(err, robocache.ErrNotFound) {
				return nil, err
			}
		}
		if name == "" {
			r.found = append(r.found, robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "missing-split",
				Where:    robocache.Where{"file": path.Join(dir, f)},
				Message:  "metadata.yaml lists the file, but it does not exist: its time is a gap",
				Hint:     "fetch the file again",
				Lost:     true,
			})
			continue
		}
		listed[name] = true
		r.files = append(r.files, path.Join(dir, name))
	}
	for _, f := range storageFiles {
		if !listed[f] {
			r.files = append(r.files, path.Join(dir, f))
			r.found = append(r.found, robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "unlisted-split",
				Where:    robocache.Where{"file": path.Join(dir, f)},
				Message:  "metadata.yaml does not list the file: it is read",
				Hint:     "ros2 bag reindex",
			})
		}
	}
	return r, nil
}

// openOptions configures opening a recording.
type openOptions struct {
	blocks *blockCache // cache of remote databases
	strict bool
	mcap   mcap.StorageOptions
}

// openStorage opens the files of a recording.
func (r *recording) openStorage(
	ctx context.Context,
	s store.Store,
	opt openOptions,
) (_ bag.Storage, err error) {
	var parts []bag.Storage
	done := false
	defer func() {
		if !done {
			for _, p := range parts {
				p.Close()
			}
		}
	}()
	found := slices.Clone(r.found)
	if opt.strict {
		for _, f := range found {
			if f.Severity == robocache.SeverityError {
				return nil, robocache.Malformed("open", f.Where, "%s", f.Message).
					WithHint("%s", f.Hint)
			}
		}
	}
	var first error
	for _, name := range r.files {
		p, err := openFile(ctx, s, name, opt)
		if err != nil {
			err = robocache.At(err, robocache.Where{"file": name})
			if opt.strict || ctx.Err() != nil || !robocache.Bad(err) {
				return nil, err
			}
			first = cmp.Or(first, err)
			found = append(
				found,
				robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "unreadable-split",
					Where:    robocache.Where{"file": name},
					Message:  "the file cannot be read, its time is a gap: " + err.Error(),
					Lost:     true,
				},
			)
			continue
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		if first == nil {
			e := robocache.NotFound("open", robocache.Where{
				"file": r.name,
			}, "the recording has no files").
				WithHint("fetch the files: none of those that metadata.yaml lists exists")
			if len(r.found) > 0 {
				e.Where, e.Hint = r.found[0].Where, r.found[0].Hint
				e.Msg = fmt.Sprintf(
					"%s lists %d files, but none of them exists",
					metadataName,
					len(r.found),
				)
				if len(r.found) == 1 {
					e.Msg = metadataName + " lists the file, but it does not exist"
				}
			}
			first = e
		}
		return nil, first
	}
	out := joinParts(parts)
	done = true
	out.found = found
	if r.meta != nil {
		r.meta.applyTo(out, r.name)
	}
	return out, nil
}

// applyTo adds information that only the metadata contains.
func (m *metadata) applyTo(s *split, name string) {
	s.notes = map[string]string{}
	for k, v := range m.custom {
		s.notes["custom_data."+k] = v
	}
	if m.distro != "" {
		s.notes["ros_distro"] = m.distro
	}
	var n int64
	for k := range s.list.Infos {
		info := &s.list.Infos[k]
		n += info.Messages
		for _, t := range m.topics {
			if t.name == info.Name && t.typ == info.Type && bag.Latched(t.qos) {
				info.Latched = true
			}
		}
	}
	if m.messages > 0 && m.messages != n {
		s.found = append(s.found, robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "stale-metadata",
			Where:    robocache.Where{"file": name},
			Count:    n - m.messages,
			Message: "metadata.yaml counts " + strconv.FormatInt(
				m.messages,
				10,
			) + " messages, the files hold " + strconv.FormatInt(
				n,
				10,
			),
			Hint: "ros2 bag reindex",
		})
	}
}

const walLimit = 1 << 30

// openFile opens one storage file. Its first bytes determine the type.
func openFile(
	ctx context.Context,
	s store.Store,
	name string,
	opt openOptions,
) (_ bag.Storage, err error) {
	defer crash.Recover("rosbag2", &err)
	f, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	var open io.Closer = f // closed on error
	defer func() {
		if open != nil {
			open.Close()
		}
	}()
	head, err := readHead(ctx, f)
	if err != nil {
		return nil, err
	}
	if isZstd(head) {
		packed := f
		if f, err = unpackFile(ctx, packed, name); err != nil {
			return nil, err
		}
		open = f
		if err := packed.Close(); err != nil {
			return nil, err
		}
		if head, err = readHead(ctx, f); err != nil {
			return nil, err
		}
	}
	var out bag.Storage
	if sqlite.IsDB(head) {
		var wal []byte
		if e, err := s.Stat(ctx, name+walSuffix); err == nil {
			// recorders delete the log when they close the file, even an empty one
			if wal = []byte{}; e.Size > 0 {
				if wal, err = store.ReadFile(ctx, s, name+walSuffix, walLimit); err != nil {
					return nil, err
				}
			}
		}
		if out, err = openDB3(ctx, f, name, wal, opt.blocks); err != nil {
			return nil, err
		}
	} else if out, err = mcap.OpenStorage(ctx, f, name, opt.mcap); err != nil {
		if strings.HasSuffix(strings.TrimSuffix(name, zstdSuffix), ".db3") {
			err = robocache.Malformed("open", nil, "").
				Expected("a SQLite 3 file", strconv.Quote(string(head)))
		}
		return nil, err
	}
	open = out
	isCompressed, err := hasCompressedMessages(ctx, out)
	if err != nil {
		return nil, err
	}
	if isCompressed {
		out = &zstdMessages{Storage: out}
	}
	open = nil
	return out, nil
}

// hasCompressedMessages reports whether the first message of the file's smallest topic is a zstd
// frame, which cannot be the beginning of a CDR message. The metadata is not needed; it is missing
// if a recorder was killed.
func hasCompressedMessages(ctx context.Context, s bag.Storage) (yes bool, err error) {
	best := -1
	infos := s.Topics()
	for k := range infos {
		if infos[k].Encoding == "cdr" && infos[k].Messages > 0 &&
			(best < 0 || infos[k].Messages < infos[best].Messages) {
			best = k
		}
	}
	if best < 0 {
		return false, nil
	}
	err = s.Messages(ctx, best, 0, 1, func(_ int, m *bag.Message) error {
		yes = isZstd(m.Data)
		return nil
	})
	isFatal := errors.Is(err, robocache.ErrTemporary) || errors.Is(err, robocache.ErrInternal) ||
		robocache.IsMachineLimit(err)
	if err != nil && ctx.Err() == nil && !isFatal {
		return false, nil // reading the messages returns the error
	}
	if err != nil {
		return yes, err
	}
	return yes, nil
}
