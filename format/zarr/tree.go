package zarr

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/zipdir"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/internal/lru"
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

// cacheKey identifies a cache entry. n is the number of a chunk of the array, or -1 minus the
// number of a shard for its index.
type cacheKey struct {
	array int32
	n     int64
}

// chunk is a decoded chunk: data, or texts. For a shard it is the index, and the open file if the
// store is remote. All fields are nil if the chunk or shard is missing.
type chunk struct {
	data  []byte
	texts []string
	table []uint64
	file  robocache.Ranged
}

// tree is an open store with its arrays.
type tree struct {
	st       store.Store
	version  string
	arrays   map[string]*Array
	attrs    map[string]any // attributes of the root
	cache    *lru.Cache[cacheKey, *chunk]
	findings []robocache.Finding
}

// openStore opens the store of the arrays: a folder, or a zip archive.
func openStore(ctx context.Context, uri string, opt robocache.OpenOptions) (store.Store, error) {
	folder, name := store.Above(uri)
	if !strings.HasSuffix(strings.ToLower(name), zipped) {
		return store.OpenFor(uri, opt)
	}
	s, err := store.OpenFor(folder, opt)
	if err != nil {
		return nil, err
	}
	z, err := openZip(ctx, s, name, strings.TrimRight(robocache.Redact(uri), "/"))
	if err == nil {
		return z, nil
	}
	store.Close(s)
	if errors.Is(err, syscall.EISDIR) {
		return store.OpenFor(uri, opt) // a folder whose name ends in .zip
	}
	return nil, err
}

func openZip(ctx context.Context, s store.Store, name, uri string) (*zipStore, error) {
	r, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	z, err := zipdir.NewStore(ctx, r, uri, "", maxMeta<<4)
	if err != nil {
		r.Close()
		return nil, robocache.At(err, robocache.Where{"file": name})
	}
	// An archive that was made outside the store's folder contains that folder as its only entry.
	if list, _ := z.List(ctx, ""); len(list) > 0 && !hasRoot(ctx, z) {
		top, _, _ := strings.Cut(list[0].Name, "/")
		last, _, _ := strings.Cut(list[len(list)-1].Name, "/")
		if top == last {
			z.Root(top)
		}
	}
	return &zipStore{Store: z, below: s}, nil
}

// zipStore also closes the store that contains the archive.
type zipStore struct {
	*zipdir.Store
	below store.Store
}

func (z *zipStore) Remote() bool { return robocache.IsRemote(z.below) }

func (z *zipStore) Keep(c store.BlockCache, block int64) (end func()) {
	return store.Keep(z.below, c, block)
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

// hasBuffer reports whether the folder contains a replay buffer. Recordings of real robots store it
// next to their videos.
func hasBuffer(ctx context.Context, s store.Store) bool {
	b, err := store.Sub(s, bufferFolder)
	return err == nil && hasRoot(ctx, b)
}

// videosBeside opens the folder that contains a store if it also contains videos of episodes. It
// returns nil if there are none.
func videosBeside(ctx context.Context, uri string, opt robocache.OpenOptions) (store.Store, error) {
	around, _ := store.Above(uri)
	s, err := store.OpenFor(around, opt)
	if err != nil {
		return nil, nil // a whole bucket has no parent folder
	}
	folders, err := store.Folders(ctx, s, "")
	if slices.Contains(folders, videosFolder) {
		return s, nil
	}
	store.Close(s)
	if errors.Is(err, robocache.ErrUnsupported) {
		err = nil // http cannot list
	}
	return nil, err
}

// readTree finds the arrays of a store, from consolidated metadata if present, otherwise by
// searching its folders.
func readTree(ctx context.Context, s store.Store, budget int64) (_ *tree, err error) {
	defer crash.Recover("zarr open", &err)
	t := &tree{st: s, arrays: map[string]*Array{}, cache: lru.New[cacheKey, *chunk](budget)}
	var root struct {
		Node     string                     `json:"node_type"`
		Attrs    map[string]any             `json:"attributes"`
		Metadata map[string]json.RawMessage `json:"metadata"` // in .zmetadata
		V3       struct {
			Metadata map[string]json.RawMessage `json:"metadata"`
		} `json:"consolidated_metadata"`
	}
	name := ""
	var b []byte
	for i, n := range []string{metaV3Name, consolidated} {
		t.version = []string{"v3", "v2"}[i]
		if b, err = store.ReadFile(ctx, s, n, maxMeta); err == nil {
			name = n
			if err := decodeJSON(n, b, &root); err != nil {
				return nil, err
			}
			break
		} else if !errors.Is(err, robocache.ErrNotFound) {
			return nil, err
		}
	}
	t.attrs = root.Attrs
	switch {
	case name == consolidated:
		t.attrs = nil
		if err := t.addArrays(root.Metadata, name); err != nil {
			return nil, err
		}
	case name == "":
		look, err := t.readMetadata(ctx, metaV2Name)
		if err != nil {
			return nil, err
		}
		if err := t.addArrays(look, ""); err != nil {
			return nil, err
		}
	case root.Node == "array":
		t.attrs = nil
		if err := t.addArrays(map[string]json.RawMessage{metaV3Name: b}, name); err != nil {
			return nil, err
		}
	case len(root.V3.Metadata) > 0:
		// metadata by the name of the file that would contain it
		nodes := map[string]json.RawMessage{}
		for n, raw := range root.V3.Metadata {
			nodes[path.Join(n, metaV3Name)] = raw
		}
		if err := t.addArrays(nodes, name); err != nil {
			return nil, err
		}
	default:
		look, err := t.readMetadata(ctx, metaV3Name)
		if err != nil {
			return nil, err
		}
		if err := t.addArrays(look, ""); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// decodeJSON decodes the JSON of a file.
func decodeJSON(file string, b []byte, v any) error {
	return robocache.At(jsonmeta.Unmarshal("zarr", b, v), robocache.Where{"file": file})
}

// nodeType distinguishes groups from arrays in v3.
type nodeType struct {
	Type string `json:"node_type"`
}

// addArrays reads the metadata of arrays, and for v2 their attributes. in is the file that contains
// all of them, or "".
func (t *tree) addArrays(nodes map[string]json.RawMessage, in string) (err error) {
	if in != "" {
		defer robocache.LocateIn(&err, "file", in)
	}
	names := slices.Sorted(maps.Keys(nodes))
	for _, name := range names {
		dir, base := path.Split(name)
		var n nodeType
		if base == metaV3Name {
			if err := decodeJSON(name, nodes[name], &n); err != nil {
				return err
			}
		}
		if base == metaV2Name || n.Type == "array" {
			if err := t.addArray(strings.TrimSuffix(dir, "/"), name, nodes[name],
				base == metaV3Name); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		var attrs map[string]any
		dir, base := path.Split(name)
		if base != attrsV2Name || json.Unmarshal(nodes[name], &attrs) != nil {
			continue
		}
		if a := t.arrays[strings.TrimSuffix(dir, "/")]; a != nil {
			a.Attrs = attrs
		} else if dir == "" {
			t.attrs = attrs
		}
	}
	return nil
}

// addArray reads the metadata of one array. An array of an unsupported type is left out with a
// finding. Malformed metadata is an error.
func (t *tree) addArray(name, file string, b []byte, v3 bool) error {
	if len(t.arrays) >= maxArrays {
		return robocache.ResourceLimit("zarr", nil, "too many arrays")
	}
	if name != "" {
		var err error
		if name, err = store.CleanName(name); err != nil {
			return err
		}
	}
	if t.arrays[name] != nil {
		return robocache.At(malformed("two arrays of one name"), robocache.Where{"stream": name})
	}
	var a *Array
	err := func() error {
		array, err := parseArray(name, b, v3)
		if err != nil {
			return err
		}
		a = array
		return nil
	}()
	if errors.Is(err, robocache.ErrUnsupported) {
		t.findings = append(
			t.findings,
			robocache.Finding{
				Severity:     robocache.SeverityWarning,
				Code:         "array-skipped",
				Where:        robocache.Where{"file": file},
				Message:      err.Error(),
				NotDelivered: name,
			},
		)
		return nil
	}
	if err := robocache.At(err, robocache.Where{"file": file}); err != nil {
		return err
	}
	a.id = int32(len(t.arrays))
	t.arrays[name] = a
	return nil
}

// readMetadata reads the metadata files of a store without consolidated metadata.
func (t *tree) readMetadata(ctx context.Context, base string) (map[string]json.RawMessage, error) {
	nodes := map[string]json.RawMessage{}
	var total int64
	read := func(name string) error {
		b, err := store.ReadFile(ctx, t.st, name, maxMeta-total)
		if err == nil {
			nodes[name] = b
			total += int64(len(b))
		}
		return err
	}
	names, err := t.metadataNames(ctx, base)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if err := read(n); err != nil {
			return nil, err
		}
		if base == metaV2Name {
			_ = read(path.Join(path.Dir(n), attrsV2Name)) // most arrays have no attributes
		}
	}
	if base == metaV2Name && nodes[attrsV2Name] == nil {
		_ = read(attrsV2Name)
	}
	return nodes, nil
}

// findMetadata returns the metadata files below a folder. It lists only folders, because a store
// has many more chunks than folders. It does not search below an array.
func (t *tree) findMetadata(
	ctx context.Context,
	dir, base string,
	depth int,
) (out []string, err error) {
	if depth > maxDims {
		return out, robocache.ResourceLimit(
			"zarr open",
			robocache.Where{"file": dir},
			"groups nested too deep",
		)
	}
	name := path.Join(dir, base)
	b, err := store.ReadFile(ctx, t.st, name, maxMeta)
	if err == nil {
		out = append(out, name)
		var n nodeType
		if base == metaV2Name || json.Unmarshal(b, &n) == nil && n.Type == "array" {
			return out, nil
		}
	} else if !errors.Is(err, robocache.ErrNotFound) {
		return out, err
	}
	folders, err := store.Folders(ctx, t.st, dir)
	if err != nil {
		return out, err
	}
	for _, f := range folders {
		names, err := t.findMetadata(ctx, path.Join(dir, f), base, depth+1)
		if err != nil {
			return out, err
		}
		out = append(out, names...)
	}
	return out, nil
}

// metadataNames returns the metadata files of a store. If the store cannot be listed, it tries the
// names that replay buffers have.
func (t *tree) metadataNames(ctx context.Context, base string) (out []string, err error) {
	err = func() error {
		walk, err := t.findMetadata(ctx, "", base, 0)
		if err != nil {
			return err
		}
		out = walk
		return nil
	}()
	if !errors.Is(err, robocache.ErrUnsupported) {
		if err != nil {
			return out, err
		}
		return out, nil
	}
	list, err := t.st.List(ctx, "")
	if !errors.Is(err, robocache.ErrUnsupported) {
		if err != nil {
			return out, err
		}
		for _, e := range list {
			if path.Base(e.Name) == base {
				out = append(out, e.Name)
			}
		}
		return out, nil
	}
	for _, n := range strings.Fields(wellKnownArrays) {
		if _, err := t.st.Stat(ctx, n+"/"+base); err == nil {
			out = append(out, n+"/"+base)
		}
	}
	if len(out) == 0 {
		return out, robocache.Unsupported(
			"zarr open",
			nil,
			"this store cannot be listed, and has no consolidated metadata",
		).
			WithHint("run zarr.consolidate_metadata over the store, or zip it")
	}
	t.findings = append(
		t.findings,
		robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "not-consolidated",
			Message: "the store cannot be listed and has no consolidated metadata: only arrays " +
				"with well-known names are found",
			Hint: "run zarr.consolidate_metadata over the store",
		},
	)
	return out, nil
}

// sortedPaths returns the paths of the arrays in order.
func (t *tree) sortedPaths() []string {
	return slices.Sorted(maps.Keys(t.arrays))
}
