package verbs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/hub"
	"github.com/goatnote-inc/robocache/query"
)

// EmbedRequest holds the options of Embed.
type EmbedRequest struct {
	// URI is the dataset.
	URI string `json:"-" arg:"URI"`
	Opening
	// Model is module:function, a function of Python from images to vectors.
	Model string `json:"model"`
	// Key is the camera. It may be empty if the dataset has one.
	Key string `json:"key"`
	// Every is the number of rows from one embedded frame to the next.
	Every int `json:"every"`
	// BatchSize is the number of images in a call of the model.
	BatchSize int `json:"batch_size"`
	// Device is cpu or cuda.
	Device string `json:"device"`
	// Python is the Python that has robocache and the model.
	Python string `json:"python"`
}

// Embedded is the result of Embed.
type Embedded struct {
	File string `json:"file"`
	query.VectorsInfo
}

// Embed computes vectors of frames with a model in Python, and stores them with the dataset.
func Embed(ctx context.Context, r *EmbedRequest, o Observer) (*Embedded, error) {
	if r.Model == "" {
		return nil, misuse("embed needs %s", robocache.Option("model"))
	}
	choices, err := ParsePairs(optionName("options"), r.Option)
	if err != nil {
		return nil, err
	}
	out := &Embedded{}
	err = runPython(ctx, r.Python, map[string]any{
		"call": "embed", "source": r.URI, "model": r.Model, "key": r.Key,
		"every": max(1, r.Every), "batch_size": cmp.Or(r.BatchSize, 64),
		"device": cmp.Or(r.Device, "cpu"),
		"open": map[string]any{
			"format": r.Format, "rows_hz": r.RowsHZ, "map": r.Map, "options": choices,
			"follow_links": r.FollowLinks, "recording_index": r.RecordingIndex,
			"split": r.Split,
		},
	}, o, out)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// runPython runs a job of robocache._embed in a Python interpreter and decodes its answer.
func runPython(ctx context.Context, python string, job any, o Observer, answer any) error {
	interpreter, err := hub.FindPython(python)
	if err != nil {
		return err
	}
	input, err := json.Marshal(job)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, interpreter, "-m", "robocache._embed")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	if o.Terminal != nil {
		cmd.Stderr = o.Terminal
	}
	failed := cmd.Run()
	var reply struct {
		Error  string          `json:"error"`
		Class  string          `json:"class"` // name of the exception
		Hint   string          `json:"hint"`
		Result json.RawMessage `json:"result"`
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	err = json.Unmarshal(lines[len(lines)-1], &reply)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		last := strings.TrimSpace(errs.String())
		return robocache.Unsupported("", nil, "%s cannot run robocache: %s", interpreter,
			last[strings.LastIndexByte(last, '\n')+1:]).WithCause(failed).
			WithHint("Name a Python that has robocache: %s.", robocache.Option("python"))
	case reply.Error != "":
		return pythonError(reply.Error, reply.Class, reply.Hint)
	}
	return json.Unmarshal(reply.Result, answer)
}

// pythonError returns the error of an exception. Its text may begin with the class and end with
// the hint.
func pythonError(text, exception, hint string) error {
	class := pythonClasses[exception]
	if class == nil {
		class = robocache.ErrMisuse
	}
	text = strings.TrimPrefix(text, class.Error()+": ")
	if hint != "" {
		text = strings.TrimSuffix(text, "; hint: "+hint)
	}
	return &robocache.Error{Class: class, Msg: text, Hint: hint}
}

// pythonClasses maps the exceptions of the Python package to classes of errors. Others are misuse:
// the model failed.
var pythonClasses = map[string]error{
	"NotFound":      robocache.ErrNotFound,
	"Malformed":     robocache.ErrMalformed,
	"Unsupported":   robocache.ErrUnsupported,
	"ResourceLimit": robocache.ErrResourceLimit,
	"Temporary":     robocache.ErrTemporary,
	"Internal":      robocache.ErrInternal,
}

// defaultSimilar is the number of frames that a search of similar frames returns.
const defaultSimilar = 20

// findSimilar returns the frames of some episodes (nil: all) that are most similar to a frame, a
// text or a vector.
func (r *Search) findSimilar(
	ctx context.Context, ds robocache.Dataset, positions []int, o Observer,
) ([]query.Range, error) {
	vectors, err := query.OpenVectors(ctx, ds)
	if err != nil {
		return nil, err
	}
	defer vectors.Close()
	wanted, err := r.wantedVector(ctx, ds, vectors, o)
	if err != nil {
		return nil, err
	}
	var episodes map[int64]bool
	if positions != nil {
		episodes = map[int64]bool{}
		for _, e := range positions {
			episodes[ds.Info().EpisodeIndex(e)] = true
		}
	}
	n := cmp.Or(r.Limit, defaultSimilar)
	matches, err := vectors.Nearest(ctx, wanted, episodes, n, r.Threads)
	if err != nil {
		return nil, err
	}
	out := make([]query.Range, 0, len(matches))
	for _, m := range matches {
		position, err := ds.Info().EpisodePosition(vectors.Episodes[m.Index])
		if err != nil {
			return nil, err
		}
		row := int(vectors.Rows[m.Index])
		found := query.Range{
			Episode: vectors.Episodes[m.Index], Position: position, From: row, To: row + 1,
			Length: ds.Len(position), Score: float64(m.Score),
		}
		if times, err := ds.Times(ctx, position, ""); err == nil {
			found.SetTimes(times)
		}
		out = append(out, found)
	}
	return out, nil
}

// wantedVector returns the vector to compare frames with.
func (r *Search) wantedVector(
	ctx context.Context, ds robocache.Dataset, vectors *query.Vectors, o Observer,
) (out []float32, err error) {
	switch {
	case r.Like != "":
		episode, row, ok := strings.Cut(r.Like, ":")
		index, err := strconv.ParseInt(episode, 10, 64)
		at, err2 := strconv.ParseInt(row, 10, 64)
		if !ok || err != nil || err2 != nil || at < 0 {
			return nil, robocache.Misuse("", nil, "%s", optionName("like")).
				Expected("EPISODE:ROW, such as 3:120", r.Like)
		}
		position, err := ds.Info().EpisodePosition(index)
		if err != nil {
			return nil, err
		}
		if n := ds.Len(position); at >= int64(n) {
			return nil, robocache.Misuse("", robocache.Where{"episode": index}, "%s",
				optionName("like")).Expected("a row of the "+strconv.Itoa(n), row)
		}
		return vectors.VectorAt(index, at)
	case r.Text != "" && r.TextModel == "":
		return nil, robocache.Misuse("", nil, "%s needs the function that embeds texts",
			optionName("text")).WithHint("Name it: %s.", robocache.Option("text_model"))
	case r.Text != "":
		job := map[string]any{"call": "text", "text": r.Text, "model": r.TextModel}
		err := runPython(ctx, r.Python, job, o, &out)
		return out, err
	}
	for _, number := range strings.Split(r.Vector, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 32)
		if err != nil {
			return nil, robocache.Misuse("", nil, "vector").Expected("numbers", r.Vector)
		}
		out = append(out, float32(v))
	}
	return out, nil
}
