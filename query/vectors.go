package query

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/sidecar"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/store"
)

// Vectors are unit vectors of frames, one for each embedded frame.
type Vectors struct {
	VectorsInfo
	Episodes []int64 // indices
	Rows     []int64
	Values   []float32 // Width numbers per frame
	close    func() error
}

// VectorsInfo describes vectors.
type VectorsInfo struct {
	Model       string `json:"model"` // module:function
	Key         string `json:"key"`   // camera
	Width       int    `json:"width"` // numbers in a vector
	Count       int    `json:"count"` // vectors
	Fingerprint string `json:"fingerprint"`
	State       string `json:"state,omitempty"` // of the files of the dataset
}

const (
	vectorsName  = "embeddings.parquet"
	vectorsMeta  = "robocache_embeddings"
	vectorsLimit = 64 << 30
	vectorsMagic = "RCVECTS1"
	maxWidth     = 1 << 16
)

// WriteVectors stores vectors of a dataset as a table in Parquet, and as a file that searches map
// into memory. The folder has the files rows (pairs of int64: index of the episode, row) and
// vectors (float32), both little-endian. Vectors are scaled to
// length 1.
func WriteVectors(
	ctx context.Context, ds robocache.Dataset, folder string, info VectorsInfo,
) (path string, _ VectorsInfo, err error) {
	if path, err = sidecarPath(ds, vectorsName); err != nil {
		return "", info, err
	}
	if info.Fingerprint, err = flags.Fingerprint(ctx, ds); err != nil {
		return "", info, err
	}
	if info.State, err = flags.FilesState(ctx, ds); err != nil {
		return "", info, err
	}
	places, closePlaces, err := mapWholeFile(filepath.Join(folder, "rows"))
	if err != nil {
		return "", info, err
	}
	defer closePlaces()
	raw, closeRaw, err := mapWholeFile(filepath.Join(folder, "vectors"))
	if err != nil {
		return "", info, err
	}
	defer closeRaw()
	info.Count = len(places) / 16
	if info.Width <= 0 || info.Width > maxWidth || len(raw) != 4*info.Width*info.Count {
		return "", info, robocache.Misuse(
			"embed",
			nil,
			"vectors of %d numbers: %d bytes for %d frames",
			info.Width,
			len(raw),
			info.Count,
		)
	}
	v := &Vectors{VectorsInfo: info, Values: section[float32](raw, 0, info.Count*info.Width)}
	for i := range info.Count {
		place := section[int64](places, int64(16*i), 2)
		v.Episodes = append(v.Episodes, place[0])
		v.Rows = append(v.Rows, place[1])
	}
	if err := v.normalize(); err != nil {
		return "", info, err
	}
	if err := v.writeTable(path); err != nil {
		return "", info, robocache.At(err, robocache.Where{"file": path})
	}
	return path, info, v.writeMap(path)
}

// normalize replaces the values by unit vectors. A vector that is not finite is an error.
func (v *Vectors) normalize() error {
	out := make([]float32, len(v.Values))
	for i := range v.Count {
		in := v.Values[i*v.Width:][:v.Width]
		if !unitVector(out[i*v.Width:][:v.Width], in) {
			return robocache.Misuse("embed",
				robocache.Where{"episode": v.Episodes[i], "row": v.Rows[i]},
				"the model %s returned a vector that is zero or not finite", v.Model)
		}
	}
	v.Values = out
	return nil
}

// unitVector scales a vector to length 1. It reports whether the vector has a direction.
func unitVector(dst, v []float32) bool {
	square := 0.0
	for _, x := range v {
		square += float64(x) * float64(x)
	}
	if !(square > 0) || math.IsInf(square, 0) {
		return false
	}
	for i, x := range v {
		dst[i] = float32(float64(x) / math.Sqrt(square))
	}
	return true
}

// replaceFile writes a local file that appears complete or not at all.
func replaceFile(path string, write func(w io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".find-*.incomplete")
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(file, 1<<20)
	err = errors.Join(write(w), w.Flush(), file.Chmod(0o644), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// writeTable writes the table in Parquet.
func (v *Vectors) writeTable(path string) error {
	meta, err := json.Marshal(v.VectorsInfo)
	if err != nil {
		return err
	}
	columns := []sidecar.Column{
		{Name: "episode_index", Integers: v.Episodes},
		{Name: "row", Integers: v.Rows},
		{Name: "vector", Vectors: v.Values, Width: v.Width},
	}
	return replaceFile(path, func(w io.Writer) error {
		return sidecar.Write(w, columns, map[string]string{vectorsMeta: string(meta)})
	})
}

// tableState identifies the state of the table in Parquet.
func tableState(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano()), nil
}

// mapHead is the header of the file that searches map into memory. Sections follow it at offset
// vectorsHead: episodes and rows (int64), and the vectors (float32).
type mapHead struct {
	VectorsInfo
	Table string `json:"table"` // state of the table
}

const vectorsHead = 4096

// writeMap writes the file that searches map into memory.
func (v *Vectors) writeMap(path string) error {
	state, err := tableState(path)
	if err != nil {
		return err
	}
	text, err := json.Marshal(mapHead{v.VectorsInfo, state})
	if err != nil {
		return err
	}
	head := binary.LittleEndian.AppendUint64([]byte(vectorsMagic), uint64(len(text)))
	if head = append(head, text...); len(head) > vectorsHead {
		return robocache.Misuse("embed", nil, "the names of the model are too long")
	}
	return replaceFile(path+"."+indexName, func(w io.Writer) error {
		for _, part := range [][]byte{
			append(head, make([]byte, vectorsHead-len(head))...),
			bytesOf(v.Episodes), bytesOf(v.Rows), bytesOf(v.Values),
		} {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	})
}

// OpenVectors opens the vectors of a dataset. They must be of its present state. The caller must
// call Close.
func OpenVectors(ctx context.Context, ds robocache.Dataset) (_ *Vectors, err error) {
	path, err := sidecarPath(ds, vectorsName)
	if err != nil {
		return nil, err
	}
	defer robocache.LocateIn(&err, "file", path)
	if _, err := os.Stat(path); err != nil {
		return nil, robocache.NotFound("find", nil, "the dataset has no embeddings").
			WithHint("Make them with %s.",
				robocache.Command("embed %s --model=FUNCTION", robocache.Redact(ds.Info().URI)))
	}
	fingerprint, err := flags.Fingerprint(ctx, ds)
	if err != nil {
		return nil, err
	}
	state, err := flags.FilesState(ctx, ds)
	if err != nil {
		return nil, err
	}
	v, err := openMap(path)
	if err != nil {
		if v, err = readTable(ctx, path); err != nil {
			return nil, err
		}
		// A folder that cannot be written only makes the next search slower.
		_ = v.writeMap(path)
	}
	if v.Fingerprint != fingerprint || !flags.SameFiles(v.State, state) {
		_ = v.Close()
		return nil, robocache.Misuse("find", nil,
			"the embeddings are of another dataset, or of another state of this one").
			WithHint("Run robocache embed again.")
	}
	return v, nil
}

// Close releases the memory of the vectors.
func (v *Vectors) Close() error {
	if v == nil || v.close == nil {
		return nil
	}
	return v.close()
}

// openMap maps the file that writeMap wrote.
func openMap(path string) (*Vectors, error) {
	state, err := tableState(path)
	if err != nil {
		return nil, err
	}
	data, unmap, err := mapWholeFile(path + "." + indexName)
	if err != nil {
		return nil, err
	}
	v, err := parseMap(data, state)
	if err != nil {
		_ = unmap()
		return nil, err
	}
	v.close = unmap
	return v, nil
}

// parseMap checks the content of the file that writeMap wrote.
func parseMap(data []byte, state string) (*Vectors, error) {
	damaged := robocache.Malformed("find", nil, "the file of vectors is damaged")
	const fixed = len(vectorsMagic) + 8
	if len(data) < vectorsHead || string(data[:len(vectorsMagic)]) != vectorsMagic {
		return nil, damaged
	}
	var head mapHead
	size := binary.LittleEndian.Uint64(data[len(vectorsMagic):])
	if size > uint64(vectorsHead-fixed) ||
		json.Unmarshal(data[fixed:fixed+int(size)], &head) != nil || head.Table != state {
		return nil, damaged
	}
	body := len(data) - vectorsHead
	if head.Width <= 0 || head.Width > maxWidth || head.Count < 0 || head.Count > body ||
		body != head.Count*(16+4*head.Width) {
		return nil, damaged
	}
	n := int64(head.Count)
	return &Vectors{
		VectorsInfo: head.VectorsInfo,
		Episodes:    section[int64](data, vectorsHead, head.Count),
		Rows:        section[int64](data, vectorsHead+8*n, head.Count),
		Values:      section[float32](data, vectorsHead+16*n, head.Count*head.Width),
	}, nil
}

// readTable reads the table in Parquet.
func readTable(ctx context.Context, path string) (*Vectors, error) {
	folder, name := store.Above(path)
	s, err := store.Open(folder)
	if err != nil {
		return nil, err
	}
	defer store.Close(s)
	file, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	columns, meta, err := sidecar.Read(ctx, file, vectorsLimit)
	if err != nil {
		return nil, err
	}
	v := &Vectors{}
	isTable := json.Unmarshal([]byte(meta[vectorsMeta]), &v.VectorsInfo) == nil
	for _, c := range columns {
		switch c.Name {
		case "episode_index":
			v.Episodes = c.Integers
		case "row":
			v.Rows = c.Integers
		case "vector":
			v.Values = c.Vectors
		}
	}
	if !isTable || v.Width <= 0 || v.Width > maxWidth || v.Count != len(v.Episodes) ||
		v.Count != len(v.Rows) || len(v.Values) != v.Count*v.Width {
		return nil, robocache.Malformed("find", nil, "the file is no table of embeddings")
	}
	return v, v.normalize()
}

// Match is a frame that is similar to a vector.
type Match struct {
	Index int     // in Vectors
	Score float32 // cosine of the angle between the vectors
}

// Nearest returns the n vectors with the largest scores, in descending order. Equal scores are in
// the order of the vectors. It compares all vectors of the episodes with the indices; nil: of all.
func (v *Vectors) Nearest(
	ctx context.Context, to []float32, episodes map[int64]bool, n, threads int,
) ([]Match, error) {
	if len(to) != v.Width {
		return nil, robocache.Misuse("find", nil, "a vector of %d numbers, and those of %s have %d",
			len(to), v.Model, v.Width)
	}
	unit := make([]float32, v.Width)
	if !unitVector(unit, to) {
		return nil, robocache.Misuse("find", nil, "the vector is zero or not finite")
	}
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	threads = max(1, min(threads, v.Count/256))
	parts := make([][]Match, threads)
	g, ctx := errgroup.WithContext(ctx)
	for t := range threads {
		g.Go(crash.Func("find", func() error {
			for i := t * v.Count / threads; i < (t+1)*v.Count/threads; i++ {
				if i%4096 == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				if episodes != nil && !episodes[v.Episodes[i]] {
					continue
				}
				score := dotProduct(unit, v.Values[i*v.Width:][:v.Width])
				parts[t] = keepBest(parts[t], Match{i, score}, n)
			}
			return nil
		}))
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	best := slices.Concat(parts...)
	slices.SortStableFunc(best, compareMatches)
	return best[:min(n, len(best))], nil
}

// compareMatches orders matches by descending score, then by place.
func compareMatches(a, b Match) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Index, b.Index))
}

// keepBest inserts m into the sorted list of the n best matches, if it is one of them.
func keepBest(best []Match, m Match, n int) []Match {
	if len(best) == n && (n == 0 || compareMatches(m, best[n-1]) > 0) {
		return best
	}
	at, _ := slices.BinarySearchFunc(best, m, compareMatches)
	best = slices.Insert(best, at, m)
	return best[:min(n, len(best))]
}

// dotProduct returns the sum of products in eight partial sums, which a processor computes in
// parallel.
func dotProduct(a, b []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	n := len(a) / 8 * 8
	b = b[:len(a)]
	for i := 0; i < n; i += 8 {
		x, y := a[i:i+8:i+8], b[i:i+8:i+8]
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
		s4 += x[4] * y[4]
		s5 += x[5] * y[5]
		s6 += x[6] * y[6]
		s7 += x[7] * y[7]
	}
	for i := n; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
}

// VectorAt returns the vector of the embedded frame nearest to a row of an episode.
func (v *Vectors) VectorAt(episode, row int64) ([]float32, error) {
	best, distance := -1, int64(math.MaxInt64)
	for i, e := range v.Episodes {
		if d := max(v.Rows[i]-row, row-v.Rows[i]); e == episode && d < distance {
			best, distance = i, d
		}
	}
	if best < 0 {
		return nil, robocache.NotFound("find", robocache.Where{"episode": episode},
			"no frame of the episode is embedded")
	}
	return v.Values[best*v.Width:][:v.Width], nil
}
