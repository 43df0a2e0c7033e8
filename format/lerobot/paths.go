package lerobot

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/natural"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// The standard layouts of the format, tried after the dataset's own template.
const (
	dataV2  = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
	videoV2 = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
	dataV3  = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
	videoV3 = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
)

// paths finds files by the declared template, then by the standard layout, then in the listing of
// the store.
type paths struct {
	store       store.Store
	info        *infoFile
	episodes    []string // episodes files, v3
	permutation []int32  // order of the episodes' rows; nil if they are in order

	data   []string            // templates, best first
	videos map[string][]string // camera → templates

	listing sync.Mutex
	tree    map[place]string // nil until it is listed
}

// newPaths returns the paths of a dataset with the given info.json.
func newPaths(s store.Store, raw *infoFile) *paths {
	p := &paths{store: s, info: raw, videos: map[string][]string{}}
	standard := dataV3
	if raw.major == 2 {
		standard = dataV2
	}
	p.data = templateCandidates(raw.dataPath, standard)
	return p
}

// templateCandidates returns the templates to try: the declared one, the standard one, and variants
// of both that occur in published datasets ("video/", "data/train/").
func templateCandidates(declaredTemplate, standard string) []string {
	var out []string
	for _, t := range []string{declaredTemplate, standard} {
		if t != "" && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	for _, t := range slices.Clone(out) {
		for _, swap := range [][2]string{
			{"videos/", "video/"},
			{"video/", "videos/"},
			{"data/", "data/train/"},
		} {
			rest, ok := strings.CutPrefix(t, swap[0])
			other := swap[1] + rest
			if ok && !slices.Contains(out, other) {
				out = append(out, other)
			}
		}
	}
	return out
}

// videoTemplates returns the templates to try for a camera, the best first.
func (p *paths) videoTemplates(key string) []string {
	if t, ok := p.videos[key]; ok {
		return t
	}
	standard := videoV3
	if p.info.major == 2 {
		standard = videoV2
	}
	return templateCandidates(p.info.videoPath, standard)
}

// chooseTemplate returns the templates with the best one first: the one under which most of the
// probed files exist. found is the number of these files.
func (p *paths) chooseTemplate(
	ctx context.Context,
	templates []string,
	probes []place,
) (best []string, found int, err error) {
	bestIndex := 0
	for i, t := range templates {
		names, err := p.existingNames(ctx, t, probes)
		if err != nil {
			return best, found, err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
		if len(names) > found {
			bestIndex = i
			found = len(names)
		}
		if found == len(probes) {
			break
		}
	}
	best = append([]string{templates[bestIndex]}, templates[:bestIndex]...)
	return append(best, templates[bestIndex+1:]...), found, nil
}

// tryPaths calls use with the possible paths of a place until one exists. It tries the templates,
// then the listing. It returns that path, or an error of class ErrNotFound with the first path.
func (p *paths) tryPaths(
	ctx context.Context,
	templates []string,
	pl place,
	use func(name string) error,
) (string, error) {
	first := ""
	for _, t := range templates {
		name, err := expandTemplate(t, pl)
		if err != nil {
			continue
		}
		if first == "" {
			first = name
		}
		if name, err = store.CleanName(name); err == nil {
			err = use(name)
		}
		if err == nil {
			return name, nil
		}
		if !errors.Is(err, robocache.ErrNotFound) {
			return "", robocache.At(err, robocache.Where{"file": name})
		}
	}
	name, err := p.pathInListing(ctx, pl)
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", robocache.NotFound(
			"lerobot",
			robocache.Where{"file": first},
			"the file is missing",
		).WithHint("fetch the whole dataset, or leave out the episodes of the file")
	}
	if err := robocache.At(use(name), robocache.Where{"file": name}); err != nil {
		return "", err
	}
	return name, nil
}

var (
	fileName  = regexp.MustCompile(`^(episode_|file[-_])(\d{1,18})\.(parquet|mp4)$`)
	chunkName = regexp.MustCompile(`^chunk[-_](\d{1,18})$`)
)

// pathInListing returns the path of a place from the listing of the store, which is read at the
// first call. It returns "" if the place is not listed or the store cannot list.
func (p *paths) pathInListing(ctx context.Context, pl place) (string, error) {
	p.listing.Lock()
	defer p.listing.Unlock()
	if p.tree == nil {
		list, _, err := store.Files(
			ctx,
			p.store,
			"",
			func(name string) bool { return path.Ext(name) != "" },
		)
		if err != nil && !errors.Is(err, robocache.ErrUnsupported) {
			return "", err
		}
		p.tree = indexTree(list, p.info)
	}
	if p.info.major == 2 {
		return p.tree[place{episode: pl.episode, key: pl.key}], nil
	}
	return p.tree[place{chunk: pl.chunk, file: pl.file, key: pl.key}], nil
}

// indexTree maps places to the listed files by the keys and numbers in their names. Two files for
// one place are ambiguous, and neither is used.
func indexTree(list []store.Entry, raw *infoFile) map[place]string {
	isCamera := map[string]bool{}
	for i := range raw.features {
		isCamera[raw.features[i].key] = raw.features[i].DType == "video"
	}
	tree := map[place]string{}
	for _, e := range list {
		dirs := strings.Split(path.Dir(e.Name), "/")
		if dirs[0] == "meta" || dirs[0] == "images" {
			continue
		}
		var pl place
		// Submatches 1 to 3 are the prefix, the number and the extension.
		m := fileName.FindStringSubmatch(path.Base(e.Name))
		if m == nil {
			continue
		}
		isEpisodeFile := m[1] == "episode_" // only v2 has such files
		if isEpisodeFile != (raw.major == 2) {
			continue
		}
		if isEpisodeFile {
			pl.episode, _ = strconv.ParseInt(m[2], 10, 64)
		} else {
			pl.file, _ = strconv.ParseInt(m[2], 10, 64)
		}
		for _, dir := range dirs {
			if c := chunkName.FindStringSubmatch(dir); c != nil && raw.major == 3 {
				pl.chunk, _ = strconv.ParseInt(c[1], 10, 64)
			}
			if isCamera[dir] && m[3] == "mp4" {
				pl.key = dir
			}
		}
		if pl.key == "" && m[3] == "mp4" {
			continue
		}
		if _, isAmbiguous := tree[pl]; isAmbiguous {
			tree[pl] = ""
		} else {
			tree[pl] = e.Name
		}
	}
	return tree
}

// numberedFiles lists the files of a tree of chunks in the order of their numbers: file-999 before
// file-1000. If the store cannot list, it tries numbers until one is missing.
func (p *paths) numberedFiles(
	ctx context.Context,
	dir, template, suffix string,
) (out []string, err error) {
	list, links, err := store.Files(ctx, p.store, dir, func(name string) bool {
		return strings.HasSuffix(name, suffix) && !strings.HasPrefix(path.Base(name), ".")
	})
	if errors.Is(err, robocache.ErrUnsupported) {
		return p.enumerateFiles(ctx, template)
	}
	if !errors.Is(err, robocache.ErrNotFound) {
		if err := robocache.At(err, robocache.Where{"file": dir}); err != nil {
			return out, err
		}
	}
	if len(links) > 0 {
		return out, links[0].Err // a link may hide files, but a table must be read completely
	}
	for _, e := range list {
		out = append(out, e.Name)
	}
	slices.SortFunc(out, natural.Compare)
	return out, nil
}

// maxFiles bounds the files that enumerateFiles finds.
const maxFiles = 1 << 20

// enumerateFiles probes growing batches of file numbers, each together with the first file of the
// next chunk. Most datasets have one chunk with few files.
func (p *paths) enumerateFiles(ctx context.Context, template string) (out []string, err error) {
	for chunk, batch := int64(0), int64(2); ; chunk++ {
		first := int64(0)
		for more := true; more; batch = min(2*batch, atOnce) {
			places := make([]place, 0, batch+1)
			for i := range batch {
				places = append(places, place{chunk: chunk, file: first + i})
			}
			names, err := p.existingNames(ctx, template, append(places, place{chunk: chunk + 1}))
			if err != nil {
				return out, err
			}
			nextChunk := names[batch]
			existing := slices.Index(names[:batch], "")
			if more = existing < 0; more { // all files of the batch exist
				existing = int(batch)
			}
			out = append(out, names[:existing]...)
			first += int64(existing)
			if len(out) > maxFiles {
				return out, robocache.ResourceLimit("lerobot", nil, "more than %d files", maxFiles)
			}
			if !more && nextChunk == "" {
				return out, nil
			}
		}
		if first == 0 { // the chunk has no file
			return out, nil
		}
	}
}

// existingNames returns the names of places whose files exist, and "" for the others.
func (p *paths) existingNames(
	ctx context.Context,
	template string,
	places []place,
) ([]string, error) {
	names := make([]string, len(places))
	g, ctx := errgroup.WithContext(ctx)
	for i, pl := range places {
		g.Go(crash.Func("lerobot probe", func() error {
			name, err := expandTemplate(template, pl)
			if err == nil {
				name, err = store.CleanName(name)
			}
			if err != nil {
				return nil // Open checked the declared template
			}
			_, err = p.store.Stat(ctx, name)
			if errors.Is(err, robocache.ErrNotFound) {
				return nil
			}
			// An irregular file counts as existing. Reading it returns an error.
			hasChanged := errors.Is(err, store.ErrChanged)
			isIrregular := errors.Is(err, robocache.ErrMalformed) && !hasChanged
			if err != nil && !isIrregular {
				return robocache.At(err, robocache.Where{"file": name})
			}
			names[i] = name
			return nil
		}))
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return names, nil
}

// place holds the values of the variables of a path template.
type place struct {
	episode int64 // episode_index (v2)
	chunk   int64 // chunk_index of the file (v3), or the episode's chunk (v2)
	file    int64 // file_index (v3)
	key     string
}

// maxTemplate bounds the bytes of a path template, and of the path that it gives.
const maxTemplate = 4096

// checkTemplate rejects a template that gives no valid path for any place. Templates are untrusted
// input.
func checkTemplate(t string) error {
	p, err := expandTemplate(t, place{key: "k"})
	if err != nil {
		return err
	}
	leavesRoot := strings.HasPrefix(p, "/") || slices.Contains(strings.Split(p, "/"), "..")
	if leavesRoot || strings.ContainsAny(p, "\\\x00") {
		return robocache.Malformed("lerobot", nil, "").
			Expected("a path below the dataset's root", strconv.Quote(t))
	}
	return nil
}

var (
	// templateField matches "{{", "}}", a field in braces, or a single brace.
	templateField  = regexp.MustCompile(`\{\{|\}\}|\{([^{}]*)\}|[{}]`)
	templateFormat = regexp.MustCompile(`^(0\d*)?d?$`)
)

// expandTemplate fills in a Python format template. Only {name} and {name:03d} are supported; no
// known dataset uses other forms.
func expandTemplate(t string, p place) (string, error) {
	if n := max(len(t), len(p.key)); n > maxTemplate {
		return "", robocache.Malformed("lerobot", nil, "path template, or key, of %d bytes", n)
	}
	numbers := map[string]int64{
		"episode_chunk": p.chunk,
		"chunk_index":   p.chunk,
		"episode_index": p.episode,
		"file_index":    p.file,
	}
	problem := ""
	path := templateField.ReplaceAllStringFunc(t, func(match string) string {
		name, format, _ := strings.Cut(strings.Trim(match, "{}"), ":")
		n, ok := numbers[name]
		width, err := strconv.Atoi("0" + strings.TrimSuffix(format, "d"))
		switch {
		case match == "{{" || match == "}}": // Python's escape of a brace
			return match[:1]
		case len(match) == 1:
			problem = "unbalanced braces"
		case name == "video_key" && format == "":
			return p.key
		case !ok:
			problem = "unknown field " + strconv.Quote(name)
		case err != nil || width > 64 || !templateFormat.MatchString(format):
			problem = "unknown format " + strconv.Quote(format)
		default:
			return fmt.Sprintf("%0*d", width, n)
		}
		return ""
	})
	if len(path) > maxTemplate {
		problem = "gives a path that is too long"
	}
	if problem != "" {
		return "", robocache.Malformed("lerobot", nil, "path template %q: %s", t, problem).
			WithHint("fields such as {chunk_index:03d} are understood")
	}
	return path, nil
}
