package layout

import (
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// TooLarge stands for every size that no budget holds; sums of sizes below it do not overflow.
const TooLarge = int64(1) << 60

// slot is where an entry of a batch lies: in the buffer that small ones share (own false), or in one of its own.
type slot struct {
	HasBuffer bool
	Offset    int
}

// SlotsFor lays the tensors of a batch of n samples out: small ones share a buffer.
func (s *Schema) SlotsFor(n int) (at []slot, shared int) {
	at = make([]slot, len(s.Tensors))
	for i := range s.Tensors {
		if size := n * s.Tensors[i].Bytes; size >= OwnBuffer || size > 0 && s.Tensors[i].IsOnDevice {
			at[i].HasBuffer = true
		} else {
			at[i].Offset = shared
			shared += RoundUp(size, 64)
		}
	}
	return at, shared
}

// OwnBuffer is the size from which on a tensor has a mapping of its own: a small tensor that a user keeps must not keep
// the frames beside it.
const OwnBuffer = 128 << 10

func RoundUp(n, to int) int { return (n + to - 1) / to * to }

// Schema is what a batch holds: the union of what its sources give.
type Schema struct {
	Fields             []Field
	Tensors            []TensorPlan
	Texts              []textPlan
	DatasetIndexTensor int   // tensor of dataset_index; -1 where there is one source
	Ragged             []int // tensors that hold what there is
}

type TensorPlan struct {
	Key        string
	DType      robocache.DType
	Shape      []int // of a sample; of a ragged one -1 and the shape of an entry
	Bytes      int   // a sample; 0 of a ragged one
	IsRagged   bool
	IsOnDevice bool // on the device that decodes
}

type textPlan struct {
	Key   string
	DType robocache.DType
}

func NewTensor(key string, dtype robocache.DType, shape ...int) TensorPlan {
	t := TensorPlan{Key: key, DType: dtype, Shape: shape, Bytes: dtype.Size(), IsRagged: len(shape) > 0 && shape[0] == -1}
	for _, d := range shape {
		t.Bytes *= d
	}
	if t.IsRagged {
		t.Bytes = 0
	}
	return t
}

// DatasetIndex is the key that says which source of a mixture a sample is of.
const DatasetIndex = "dataset_index"

// Add adds a field with its tensor or texts, and gives the place of that.
func (s *Schema) Add(x Field) int {
	if x.Shape == nil {
		x.Shape = []int{}
	}
	s.Fields = append(s.Fields, x)
	if x.Text() {
		s.Texts = append(s.Texts, textPlan{x.Key, x.DType})
		return len(s.Texts) - 1
	}
	s.Tensors = append(s.Tensors, NewTensor(x.Key, x.DType, x.Shape...))
	return len(s.Tensors) - 1
}

// TensorIndex is the place of a key's tensor; -1 where it has none.
func (s *Schema) TensorIndex(key string) int {
	return slices.IndexFunc(s.Tensors, func(t TensorPlan) bool { return t.Key == key })
}

// BaseKey is the key that a field belongs to: a ragged tensor's lengths and times are that key's.
func (f *Field) BaseKey() string {
	switch {
	case f.Lengths:
		return strings.TrimSuffix(f.Key, LengthsSuffix)
	case f.Times:
		return strings.TrimSuffix(f.Key, TimesSuffix)
	}
	return f.Key
}
