package zarr

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path"
	"sort"
	"strings"
	"syscall"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/lru"
	"github.com/goatnote-inc/robocache/format/internal/zipdir"
	"github.com/goatnote-inc/robocache/store"
)

const (
	maxMeta         = 64 << 20
	maxArrays       = 65535
	metaV2Name      = ".zarray"
	metaV3Name      = "zarr.json"
	consolidated    = ".zmetadata"
	attrsV2Name     = ".zattrs"
	groupV2Name     = ".zgroup"
	zipped          = ".zip"
	smallestBudget  = 1 << 20
	defaultBudget   = 512 << 20
	wellKnownArrays = "data/action data/state data/img data/obs meta/episode_ends"
)

// unit names what is cached: a chunk of an array by its number, a shard's index by -1 minus its number.
type unit struct {
	array int32
	n     int64
}

// chunk is a decoded chunk: data, or texts, or a shard's index; all nil where it is absent.
type chunk struct {
	data  []byte
	texts []string
	table []uint64
}

// tree is an open store with its arrays.
type tree struct {
	st       store.Store
	version  string
	arrays   map[string]*Array
	attrs    map[string]any // of the root
	cache    *lru.Cache[unit, *chunk]
	findings []robocache.Finding
}

// openStore opens what holds the arrays: a folder, or a zip archive.
func openStore(ctx context.Context, uri string, opt robocache.OpenOptions) (store.Store, error) {
	trimmed := strings.TrimRight(uri, "/")
	if !strings.HasSuffix(strings.ToLower(trimmed), zipped) {
		return store.OpenFor(uri, opt)
	}
	folder, name := ".", trimmed
	if i := strings.LastIndexByte(trimmed, '/'); i >= 0 {
		if folder, name = trimmed[:i], trimmed[i+1:]; folder == "" {
			folder = "/"
		}
	}
	s, err := store.OpenFor(folder, opt)
	if err != nil {
		return nil, err
	}
	r, err := s.Open(ctx, name)
	if err != nil {
		store.Close(s)
		if errors.Is(err, syscall.EISDIR) {
			return store.OpenFor(uri, opt) // a folder that is named so
		}
		return nil, err
	}
	z, err := zipdir.NewStore(ctx, r, robocache.Redact(trimmed), "", maxMeta<<4)
	if err != nil {
		r.Close()
		store.Close(s)
		return nil, robocache.At(err, robocache.Where{"file": name})
	}
	// An archive made from outside the store's folder has it as its one folder.
	if list, _ := z.List(ctx, ""); len(list) > 0 && !hasRoot(ctx, z) {
		top, _, _ := strings.Cut(list[0].Name, "/")
		last, _, _ := strings.Cut(list[len(list)-1].Name, "/")
		if top == last {
			z.Root(top)
		}
	}
	return &zipStore{Store: z, below: s}, nil
}

// zipStore closes the folder of the archive too.
type zipStore struct {
	*zipdir.Store
	below store.Store
}

func (z *zipStore) Close() error { return errors.Join(z.Store.Close(), store.Close(z.below)) }

func hasRoot(ctx context.Context, s store.Store) bool {
	for _, n := range []string{metaV3Name, consolidated, groupV2Name, metaV2Name} {
		if _, err := s.Stat(ctx, n); err == nil {
			return true
		}
	}
	return false
}

// hasBuffer says whether a replay buffer lies in the folder, as recordings of real robots have it beside their videos.
func hasBuffer(ctx context.Context, s store.Store) bool {
	b, err := store.Sub(s, bufferFolder)
	return err == nil && hasRoot(ctx, b)
}

// videosBeside opens the folder around a store where it has videos of episodes; nil where there are none.
func videosBeside(uri string, opt robocache.OpenOptions) (store.Store, error) {
	uri = strings.TrimRight(uri, "/")
	if uri == "" || strings.Contains(uri, "://") {
		return nil, nil
	}
	around := path.Dir(uri)
	if info, err := os.Stat(path.Join(around, videosFolder)); err != nil || !info.IsDir() {
		return nil, nil
	}
	return store.OpenFor(around, opt)
}

// readTree finds the arrays of a store.
func readTree(ctx context.Context, s store.Store, budget int64) (*tree, error) {
	t := &tree{st: s, arrays: map[string]*Array{}, cache: lru.New[unit, *chunk](max(budget, smallestBudget))}
	b, err := store.ReadFile(ctx, s, metaV3Name, maxMeta)
	if err == nil {
		t.version = "v3"
		return t, t.readV3(ctx, b)
	}
	if !errors.Is(err, robocache.ErrNotFound) {
		return nil, err
	}
	t.version = "v2"
	b, err = store.ReadFile(ctx, s, consolidated, maxMeta)
	switch {
	case err == nil:
		return t, robocache.At(t.readConsolidated(b), robocache.Where{"file": consolidated})
	case !errors.Is(err, robocache.ErrNotFound):
		return nil, err
	}
	return t, t.readV2(ctx)
}

// add reads one array's metadata. An array whose type is not read is left out with a finding; broken metadata is an error.
func (t *tree) add(name string, b []byte, parse func(string, []byte) (*Array, error)) error {
	if len(t.arrays) >= maxArrays {
		return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "zarr", Msg: "too many arrays"}
	}
	if name != "" {
		clean, err := store.CleanName(name)
		if err != nil {
			return err
		}
		name = clean
	}
	if t.arrays[name] != nil {
		return robocache.At(malformed("two arrays of one name"), robocache.Where{"stream": name})
	}
	a, err := parse(name, b)
	if errors.Is(err, robocache.ErrUnsupported) {
		t.findings = append(t.findings, robocache.Finding{Severity: robocache.SeverityWarning, Code: "array-skipped", Where: robocache.Where{"file": path.Join(name, map[string]string{"v2": metaV2Name, "v3": metaV3Name}[t.version])}, Message: err.Error(), NotDelivered: name})
		return nil
	}
	if err != nil {
		return robocache.At(err, robocache.Where{"file": path.Join(name, map[string]string{"v2": metaV2Name, "v3": metaV3Name}[t.version])})
	}
	a.id = int32(len(t.arrays))
	t.arrays[name] = a
	return nil
}

// readConsolidated reads .zmetadata.
func (t *tree) readConsolidated(b []byte) error {
	var m struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return malformed("%v", err)
	}
	for name, raw := range m.Metadata {
		if path.Base(name) == metaV2Name {
			if err := t.add(strings.TrimSuffix(strings.TrimSuffix(name, metaV2Name), "/"), raw, arrayV2); err != nil {
				return err
			}
		}
	}
	for name, raw := range m.Metadata {
		if path.Base(name) == attrsV2Name {
			t.setAttrs(strings.TrimSuffix(strings.TrimSuffix(name, attrsV2Name), "/"), raw)
		}
	}
	return nil
}

func (t *tree) setAttrs(name string, raw []byte) {
	var attrs map[string]any
	if json.Unmarshal(raw, &attrs) != nil {
		return
	}
	if a := t.arrays[name]; a != nil {
		a.Attrs = attrs
	} else if name == "" {
		t.attrs = attrs
	}
}

// walk finds the metadata files below a folder by the folders alone: a store has far more chunks than folders, and below an array there is
// nothing to find.
func (t *tree) walk(ctx context.Context, dir, base string, depth int, out *[]string) error {
	if depth > maxDims {
		return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "zarr open", Where: robocache.Where{"file": dir}, Msg: "groups nested too deep"}
	}
	name := path.Join(dir, base)
	b, err := store.ReadFile(ctx, t.st, name, maxMeta)
	if err == nil {
		*out = append(*out, name)
		var node struct {
			Node string `json:"node_type"`
		}
		if base == metaV2Name || json.Unmarshal(b, &node) == nil && node.Node == "array" {
			return nil
		}
	} else if !errors.Is(err, robocache.ErrNotFound) {
		return err
	}
	below, err := store.Folders(ctx, t.st, dir)
	if err != nil {
		return err
	}
	for _, f := range below {
		if err := t.walk(ctx, path.Join(dir, f), base, depth+1, out); err != nil {
			return err
		}
	}
	return nil
}

// names lists the metadata files of a store; where it cannot be listed, those that replay buffers have are tried.
func (t *tree) names(ctx context.Context, base string) ([]string, error) {
	var found []string
	if err := t.walk(ctx, "", base, 0, &found); err == nil || !errors.Is(err, robocache.ErrUnsupported) {
		return found, err
	}
	list, err := t.st.List(ctx, "")
	var out []string
	if errors.Is(err, robocache.ErrUnsupported) {
		for _, n := range strings.Fields(wellKnownArrays) {
			if _, err := t.st.Stat(ctx, n+"/"+base); err == nil {
				out = append(out, n+"/"+base)
			}
		}
		if len(out) == 0 {
			return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "zarr open", Msg: "this store cannot be listed, and has no consolidated metadata", Hint: "run zarr.consolidate_metadata over the store, or zip it"}
		}
		t.findings = append(t.findings, robocache.Finding{Severity: robocache.SeverityWarning, Code: "not-consolidated", Message: "the store cannot be listed and has no consolidated metadata: only arrays with well-known names are found", Hint: "run zarr.consolidate_metadata over the store"})
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if path.Base(e.Name) == base {
			out = append(out, e.Name)
		}
	}
	return out, nil
}

func (t *tree) readV2(ctx context.Context) error {
	names, err := t.names(ctx, metaV2Name)
	if err != nil {
		return err
	}
	var total int64
	read := func(name string) ([]byte, error) {
		b, err := store.ReadFile(ctx, t.st, name, maxMeta-total)
		total += int64(len(b))
		return b, err
	}
	for _, n := range names {
		b, err := read(n)
		if err != nil {
			return err
		}
		dir := strings.TrimSuffix(strings.TrimSuffix(n, metaV2Name), "/")
		if err := t.add(dir, b, arrayV2); err != nil {
			return err
		}
	}
	for dir := range t.arrays {
		if b, err := read(path.Join(dir, attrsV2Name)); err == nil {
			t.setAttrs(dir, b)
		}
	}
	if b, err := read(attrsV2Name); err == nil && t.arrays[""] == nil {
		t.setAttrs("", b)
	}
	return nil
}

// readV3 reads the root's zarr.json, and those below, which may be consolidated in it.
func (t *tree) readV3(ctx context.Context, b []byte) error {
	var g struct {
		Format       int            `json:"zarr_format"`
		Node         string         `json:"node_type"`
		Attrs        map[string]any `json:"attributes"`
		Consolidated *struct {
			Metadata map[string]json.RawMessage `json:"metadata"`
		} `json:"consolidated_metadata"`
	}
	if err := json.Unmarshal(b, &g); err != nil {
		return robocache.At(malformed("%v", err), robocache.Where{"file": metaV3Name})
	}
	if g.Node == "array" {
		return t.add("", b, arrayV3)
	}
	t.attrs = g.Attrs
	if g.Consolidated != nil {
		for name, raw := range g.Consolidated.Metadata {
			if err := t.addV3(name, raw); err != nil {
				return err
			}
		}
		return nil
	}
	names, err := t.names(ctx, metaV3Name)
	if err != nil {
		return err
	}
	var total int64
	for _, n := range names {
		if n == metaV3Name {
			continue
		}
		b, err := store.ReadFile(ctx, t.st, n, maxMeta-total)
		if err != nil {
			return err
		}
		total += int64(len(b))
		if err := t.addV3(path.Dir(n), b); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) addV3(name string, b []byte) error {
	var node struct {
		Node string `json:"node_type"`
	}
	if err := json.Unmarshal(b, &node); err != nil {
		return robocache.At(malformed("%v", err), robocache.Where{"file": path.Join(name, metaV3Name)})
	}
	if node.Node != "array" {
		return nil
	}
	return t.add(name, b, arrayV3)
}

// paths gives the arrays' paths in order.
func (t *tree) paths() []string {
	out := make([]string, 0, len(t.arrays))
	for p := range t.arrays {
		out = append(out, p)
	}
	sort.Strings(out)
	return out
}
