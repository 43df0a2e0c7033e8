package rosbag2

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// recording is one bag: the files that belong together, in their order.
type recording struct {
	name  string // for errors: the folder, or the file
	files []string
	meta  *metadata
	found []robocache.Finding
}

// packed is the ending of FILE compression.
const packed = ".zstd"

// splitName is the name of a split: stem_number.ending.
var splitName = regexp.MustCompile(`^(.*)_(\d{1,9})\.(db3|mcap)(\.zstd)?$`)

// storageFile says whether a name is that of a storage file.
func storageFile(name string) bool {
	name = strings.TrimSuffix(name, packed)
	return strings.HasSuffix(name, ".db3") || strings.HasSuffix(name, ".mcap")
}

// find lists the recordings below a store, and the links that may hide others.
func find(ctx context.Context, s store.Store) (out []recording, links []store.Entry, err error) {
	entries, links, err := store.Files(ctx, s, "", func(name string) bool { return path.Base(name) == metadataName || storageFile(name) })
	if errors.Is(err, robocache.ErrUnsupported) {
		// A web server does not say what a folder holds: its metadata does.
		r, err := withMetadata(ctx, s, "", nil)
		if err != nil {
			return nil, nil, err
		}
		if r == nil {
			return nil, nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "open", Msg: "no rosbag2 metadata.yaml is here"}
		}
		return []recording{*r}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	folders := map[string][]string{}
	meta := map[string]bool{}
	for _, e := range entries {
		dir, base := path.Split(e.Name)
		dir = strings.TrimSuffix(dir, "/")
		if base == metadataName {
			meta[dir] = true
		} else if e.Size > 0 || e.Err != nil {
			folders[dir] = append(folders[dir], base)
		}
	}
	dirs := make([]string, 0, len(folders))
	for d := range folders {
		dirs = append(dirs, d)
	}
	for d := range meta {
		if folders[d] == nil {
			dirs = append(dirs, d)
		}
	}
	slices.SortFunc(dirs, natural.Compare)
	for _, dir := range dirs {
		files := folders[dir]
		slices.SortFunc(files, natural.Compare)
		if meta[dir] {
			r, err := withMetadata(ctx, s, dir, files)
			if err != nil {
				return nil, nil, robocache.At(err, robocache.Where{"file": path.Join(dir, metadataName)})
			}
			if r != nil {
				out = append(out, *r)
				continue
			}
		}
		out = append(out, byStem(dir, files)...)
	}
	return out, links, nil
}

// byStem makes recordings of files without metadata: splits of one stem belong together.
func byStem(dir string, files []string) []recording {
	var out []recording
	at := map[string]int{}
	for _, f := range plain(files) {
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
			out = append(out, recording{name: name, found: []robocache.Finding{{Severity: robocache.SeverityInfo, Code: "no-metadata", Where: robocache.Where{"file": path.Join(dir, f)},
				Message: "no metadata.yaml lies beside the file: the recorder was killed, or the file was moved", Hint: "ros2 bag reindex"}}})
		}
		out[k].files = append(out[k].files, path.Join(dir, f))
	}
	return out
}

// plain leaves out compressed files whose plain twin is there.
func plain(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(f string) bool {
		return strings.HasSuffix(f, packed) && slices.Contains(files, strings.TrimSuffix(f, packed))
	})
}

// withMetadata makes the recording of a folder with metadata.yaml; nil where that is none of rosbag2's. there are the storage files of
// the folder, nil where that is not known.
func withMetadata(ctx context.Context, s store.Store, dir string, there []string) (*recording, error) {
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
	if err != nil || m == nil {
		return nil, err
	}
	r := &recording{name: dir, meta: m}
	if dir == "" {
		r.name = metadataName
	}
	if m.compression != "" && m.compression != "zstd" {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "open", Msg: "compression " + strconv.Quote(clip(m.compression)) + " is not read", Hint: "zstd is"}
	}
	there = plain(there)
	listed := map[string]bool{}
	for _, f := range m.files {
		name := ""
		for _, n := range []string{f, strings.TrimSuffix(f, packed), f + packed, path.Base(f), path.Base(f) + packed} {
			if listed[n] {
				continue
			}
			if _, err := s.Stat(ctx, path.Join(dir, n)); err == nil || errors.Is(err, robocache.ErrMalformed) { // no file: opening it says why
				name = n
				break
			} else if !errors.Is(err, robocache.ErrNotFound) {
				return nil, err
			}
		}
		if name == "" {
			r.found = append(r.found, robocache.Finding{Severity: robocache.SeverityError, Code: "missing-split", Where: robocache.Where{"file": path.Join(dir, f)},
				Message: "metadata.yaml lists the file, and it is not there: its time is a gap", Hint: "fetch the file again", Lost: true})
			continue
		}
		listed[name] = true
		r.files = append(r.files, path.Join(dir, name))
	}
	for _, f := range there {
		if !listed[f] {
			r.files = append(r.files, path.Join(dir, f))
			r.found = append(r.found, robocache.Finding{Severity: robocache.SeverityWarning, Code: "unlisted-split", Where: robocache.Where{"file": path.Join(dir, f)},
				Message: "metadata.yaml does not list the file: it is read", Hint: "ros2 bag reindex"})
		}
	}
	return r, nil
}

// openOptions are the choices of opening a recording.
type openOptions struct {
	blocks *lastBlocks // of distant databases
	strict bool
	mcap   mcap.StorageOptions
}

// open opens the files of a recording.
func (r *recording) open(ctx context.Context, s store.Store, opt openOptions) (_ bag.Storage, err error) {
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
				return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "open", Where: f.Where, Msg: f.Message, Hint: f.Hint}
			}
		}
	}
	var first error
	for _, name := range r.files {
		p, err := openFile(ctx, s, name, opt)
		if err != nil {
			err = robocache.At(err, robocache.Where{"file": name})
			if opt.strict || ctx.Err() != nil || !ofTheFile(err) {
				return nil, err
			}
			if first == nil {
				first = err
			}
			found = append(found, robocache.Finding{Severity: robocache.SeverityError, Code: "unreadable-split", Where: robocache.Where{"file": name}, Message: "the file cannot be read, its time is a gap: " + err.Error(), Lost: true})
			continue
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		if first == nil {
			e := &robocache.Error{Class: robocache.ErrNotFound, Op: "open", Where: robocache.Where{"file": r.name}, Msg: "the recording has no files", Hint: "fetch them; metadata.yaml lists none that is here"}
			if len(r.found) > 0 {
				e.Where, e.Hint = r.found[0].Where, r.found[0].Hint
				e.Msg = fmt.Sprintf("%s lists %d files, and none is there", metadataName, len(r.found))
				if len(r.found) == 1 {
					e.Msg = metadataName + " lists the file, and it is not there"
				}
			}
			first = e
		}
		return nil, first
	}
	out := join(parts)
	done = true
	out.found = found
	if r.meta != nil {
		r.meta.apply(out, r.name)
	}
	return out, nil
}

// ofTheFile says that an error is about what a file holds, not about reaching it: such a file is a gap, and the others are read.
func ofTheFile(err error) bool {
	return errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrUnsupported) || errors.Is(err, robocache.ErrNotFound)
}

// apply adds what only the metadata says.
func (m *metadata) apply(s *split, name string) {
	s.notes = map[string]string{}
	for k, v := range m.custom {
		s.notes["custom_data."+k] = v
	}
	if m.distro != "" {
		s.notes["ros_distro"] = m.distro
	}
	var n int64
	for k := range s.infos {
		info := &s.infos[k]
		n += info.Messages
		for _, t := range m.topics {
			if t.name == info.Name && t.typ == info.Type && bag.Latched(t.qos) {
				info.Latched = true
			}
		}
	}
	if m.messages > 0 && m.messages != n {
		s.found = append(s.found, robocache.Finding{Severity: robocache.SeverityWarning, Code: "stale-metadata", Where: robocache.Where{"file": name}, Count: n - m.messages,
			Message: "metadata.yaml counts " + strconv.FormatInt(m.messages, 10) + " messages, the files hold " + strconv.FormatInt(n, 10), Hint: "ros2 bag reindex"})
	}
}

const walLimit = 1 << 30

// openFile opens one storage file by what its first bytes say.
func openFile(ctx context.Context, s store.Store, name string, opt openOptions) (_ bag.Storage, err error) {
	defer guard.Malformed("rosbag2", &err)
	var f robocache.Ranged
	f = guard.Must(s.Open(ctx, name))
	kept := false
	defer func() {
		if !kept {
			f.Close()
		}
	}()
	head := make([]byte, min(16, f.Size()))
	guard.Check(f.ReadAt(ctx, head, 0))
	if len(head) >= 4 && string(head[:4]) == "\x28\xb5\x2f\xfd" {
		u := guard.Must(unpack(ctx, f, name))
		if err := f.Close(); err != nil {
			u.Close()
			return nil, err
		}
		f = u
		head = make([]byte, min(16, f.Size()))
		guard.Check(f.ReadAt(ctx, head, 0))
	}
	var out bag.Storage
	if sqlite.IsDB(head) {
		var wal []byte
		if e, err := s.Stat(ctx, name+"-wal"); err == nil {
			if wal = []byte{}; e.Size == 0 {
				// A close takes the log away, also one without a page.
			} else if wal, err = store.ReadFile(ctx, s, name+"-wal", walLimit); err != nil {
				return nil, err
			}
		}
		out = guard.Must(openDB3(ctx, f, name, wal, opt.blocks))
	} else if out, err = mcap.OpenStorage(ctx, f, name, opt.mcap); err != nil {
		if strings.HasSuffix(strings.TrimSuffix(name, packed), ".db3") {
			err = &robocache.Error{Class: robocache.ErrMalformed, Op: "open", Want: "a SQLite 3 file", Got: strconv.Quote(string(head))}
		}
		return nil, err
	}
	kept = true
	squeezed, err := compressedMessages(ctx, out)
	if err != nil {
		out.Close()
		return nil, err
	}
	if squeezed {
		return &zstdMessages{Storage: out}, nil
	}
	return out, nil
}

// compressedMessages looks at the first message of the file's smallest topic: a zstd frame begins as no CDR message does. The metadata's
// word is not needed, and is missing where a recorder was killed.
func compressedMessages(ctx context.Context, s bag.Storage) (yes bool, err error) {
	best := -1
	infos := s.Topics()
	for k := range infos {
		if infos[k].Encoding == "cdr" && infos[k].Messages > 0 && (best < 0 || infos[k].Messages < infos[best].Messages) {
			best = k
		}
	}
	if best < 0 {
		return false, nil
	}
	err = s.Messages(ctx, best, 0, 1, func(_ int, m *bag.Message) error {
		yes = len(m.Data) >= 4 && string(m.Data[:4]) == "\x28\xb5\x2f\xfd"
		return nil
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, robocache.ErrTemporary) {
		return false, nil // who reads it meets it again
	}
	return yes, err
}
