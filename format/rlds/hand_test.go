package rlds

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// hand is a dataset made by hand, of which every byte is known.
type hand struct {
	features string // features of a step, as JSON without braces
	context  string // features of an episode
	info     string
	shards   map[string][]byte
}

func scalar(dtype string) string {
	return `{"pythonClassName": "x.Scalar", "tensor": {"shape": {}, "dtype": "` + dtype +
		`", "encoding": "none"}}`
}

func newHand() *hand {
	h := &hand{shards: map[string][]byte{}}
	h.features = `"is_first": ` + scalar(
		"bool",
	) + `, "reward": ` + scalar(
		"float32",
	) + `, "language_instruction": {"text": {}},
		"observation": {"featuresDict": {"features": {"state": {"tensor": {"shape": {"dimensions": ["2"]}, "dtype": "float64", "encoding": "none"}}, "n": ` + scalar(
		"int32",
	) + `}}}`
	h.info = handInfo("toy", "train", 3)
	h.shards["toy-train.tfrecord-00000-of-00001"] = append(
		append(appendRecord(nil, handEpisode(0, 3)), appendRecord(nil, handEpisode(1, 1))...),
		appendRecord(nil, handEpisode(2, 5))...)
	return h
}

func handInfo(name, split string, lengths ...int) string {
	text := ""
	for i, n := range lengths {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf(`"%d"`, n)
	}
	return `{"name": "` + name + `", "version": "1.0.0", "fileFormat": "tfrecord", "splits": [{"name": "` + split + `", "filepathTemplate": "` + defaultTemplate + `", "numBytes": "1", "shardLengths": [` + text + `]}]}`
}

func f32s(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// handExample returns episode e of n steps: state is (e, step), reward and n are the step.
func handExample(e, n int) *exampleWriter {
	x := newExample()
	first := make([]int64, n)
	var reward, state []byte
	count := make([]int64, n)
	texts := make([][]byte, n)
	for i := range n {
		reward = append(reward, f32s(float32(i))...)
		state = append(state, f32s(float32(e), float32(i))...)
		count[i] = int64(i) - 1
		texts[i] = fmt.Appendf(nil, "task %d", e)
	}
	if n > 0 {
		first[0] = 1
	}
	x.ints("steps/is_first", first)
	x.floats("steps/reward", reward)
	x.floats("steps/observation/state", state)
	x.ints("steps/observation/n", count)
	x.strings("steps/language_instruction", texts)
	return x
}

func handEpisode(e, n int) []byte {
	b, err := handExample(e, n).bytes()
	if err != nil {
		panic(err)
	}
	return b
}

func (h *hand) put(s *storetest.Mem) {
	context := ""
	if h.context != "" {
		context = ", " + h.context
	}
	s.Put(
		featuresName,
		[]byte(
			`{"featuresDict": {"features": {"steps": {"sequence": {"length": "-1", "feature": {"featuresDict": {"features": {`+h.features+`}}}}}`+context+`}}}`,
		),
	)
	s.Put(infoName, []byte(h.info))
	for n, b := range h.shards {
		s.Put(n, b)
	}
}

var handOptions = robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}}

func (h *hand) open(t testing.TB, name string) (*Dataset, error) {
	t.Helper()
	s := storetest.NewMem("rlds-" + name)
	t.Cleanup(s.Drop)
	h.put(s)
	d, err := OpenStore(t.Context(), s, handOptions)
	if err == nil {
		t.Cleanup(func() { d.Close() })
	}
	return d, err
}

// checkEpisode checks whether an episode is what handExample made of e. An error must be typed.
func checkEpisode(t testing.TB, d *Dataset, position, e int) error {
	t.Helper()
	rows := rowsOf(d, position)
	state := make([]byte, len(rows)*16)
	if err := d.Gather(t.Context(), "observation.state", rows, state); err != nil {
		return err
	}
	n := make([]byte, len(rows)*4)
	if err := d.Gather(t.Context(), "observation.n", rows, n); err != nil {
		return err
	}
	texts, err := d.Text(t.Context(), "language_instruction", rows)
	if err != nil {
		return err
	}
	v := robocache.Float64s(nil, robocache.Float64, state)
	for i := range rows {
		if v[2*i] != float64(e) || v[2*i+1] != float64(i) ||
			int32(binary.LittleEndian.Uint32(n[4*i:])) != int32(i-1) ||
			texts[i] != fmt.Sprintf("task %d", e) {
			t.Errorf("position %d row %d is not that of episode %d", position, i, e)
		}
	}
	return nil
}
