package layout

import (
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// tooLarge represents every size that exceeds all budgets. Sums of sizes below it do not overflow.
const tooLarge = int64(1) << 60

// slot locates a tensor: at the start of a separate buffer, or at Offset of the buffer that small
// tensors share.
type slot struct {
	HasBuffer bool
	Offset    int
}

// SlotsFor returns the slots of the tensors of a batch of n samples and the size of the shared
// buffer.
func (s *Schema) SlotsFor(n int) (slots []slot, sharedBytes int) {
	slots = make([]slot, len(s.Tensors))
	for i := range s.Tensors {
		if size := n * s.Tensors[i].Bytes; size >= ownBuffer ||
			size > 0 && s.Tensors[i].IsOnDevice {
			slots[i].HasBuffer = true
		} else {
			slots[i].Offset = sharedBytes
			sharedBytes += roundUp(size, 64)
		}
	}
	return slots, sharedBytes
}

// ownBuffer is the size in bytes from which a tensor has a separate buffer. A consumer that keeps a
// small tensor must not keep the frames of the batch in memory.
const ownBuffer = 128 << 10

// roundUp returns the smallest multiple of to that is at least n.
func roundUp(n, to int) int { return (n + to - 1) / to * to }

// Schema describes a batch: the union of the fields of its sources.
type Schema struct {
	Fields             []Field
	Tensors            []TensorPlan
	Texts              []textPlan
	DatasetIndexTensor int   // the tensor of dataset_index; -1 with one source
	Ragged             []int // the tensors whose size varies between batches
}

// TensorPlan describes one tensor of a batch before it is allocated.
type TensorPlan struct {
	Key        string
	DType      robocache.DType
	Shape      []int // of a sample; of a ragged tensor -1 and the shape of an entry
	Bytes      int   // of a sample; 0 for a ragged tensor
	IsRagged   bool
	IsOnDevice bool // in the memory of the device that decodes
}

type textPlan struct {
	Key   string
	DType robocache.DType
}

// NewTensor returns the description of a tensor. shape is the shape of a sample; a first axis of -1
// makes it ragged.
func NewTensor(key string, dtype robocache.DType, shape ...int) TensorPlan {
	t := TensorPlan{
		Key:      key,
		DType:    dtype,
		Shape:    shape,
		Bytes:    dtype.Size(),
		IsRagged: len(shape) > 0 && shape[0] == -1,
	}
	for _, d := range shape {
		t.Bytes *= d
	}
	if t.IsRagged {
		t.Bytes = 0
	}
	return t
}

// DatasetIndex is the key that holds the number of each sample's source in a mixture.
const DatasetIndex = "dataset_index"

// Add appends a field and its tensor or text column. It returns the index of the tensor or column.
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

// TensorIndex returns the index of a key's tensor, or -1.
func (s *Schema) TensorIndex(key string) int {
	return slices.IndexFunc(s.Tensors, func(t TensorPlan) bool { return t.Key == key })
}

// BaseKey returns the key that a field belongs to. Lengths and times belong to the key of their
// ragged tensor.
func (f *Field) BaseKey() string {
	switch {
	case f.Lengths:
		return strings.TrimSuffix(f.Key, LengthsSuffix)
	case f.Times:
		return strings.TrimSuffix(f.Key, TimesSuffix)
	}
	return f.Key
}
