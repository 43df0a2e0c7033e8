package layout

import (
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
)

// Field describes one entry of a batch, in the batch's order. Shape is one sample's, without the batch axis.
type Field struct {
	Key   string          `json:"key"`
	DType robocache.DType `json:"dtype"` // String and JSON: text columns; else tensors
	Shape []int           `json:"shape"`
	Kind  robocache.Kind  `json:"kind"`
	Unit  string          `json:"unit,omitempty"` // of the values before normalisation; of depth what depth_unit chose
	Mask  bool            `json:"mask,omitempty"` // a `<key>_is_pad`
	// Ragged: the tensor has the entries of all samples, one after the other, and not the batch axis; Shape is -1 and the shape of one entry.
	// The field behind it is its `<key>_lengths` (Lengths): how many entries each sample has, or each step of its window. Of a span the next one
	// is `<key>_times` (Times), ragged by the same lengths: when its samples were, in ns after the batch's sample. Of spans of frames and clouds
	// the times are not ragged, but one a place.
	Ragged  bool `json:"ragged,omitempty"`
	Lengths bool `json:"lengths,omitempty"`
	Times   bool `json:"times,omitempty"`
}

// Text says that the entry is a list of strings a batch (JSON: of JSON values), not a tensor.
func (f *Field) Text() bool { return f.DType == robocache.String || f.DType == robocache.JSON }

// Tensor is one contiguous array of a batch: C order, little-endian, outside the Go heap, at a 64-byte boundary
// (a page boundary where it is large).
type Tensor struct {
	Key   string
	DType robocache.DType
	Shape []int // with the batch axis; of a ragged one all entries
	Data  []byte
	// Device is 1 + the number of the CUDA device whose memory Data stands for, of frames that it decoded for raw batches: the host cannot touch it. 0: the host's.
	Device int

	Buffer *buffers.Buffer
}

// Alone says that the tensor has a buffer of its own; small ones share one.
func (t *Tensor) Alone() bool { return len(t.Data) >= OwnBuffer || t.Device != 0 }

// Texts is one text column of a batch.
type Texts struct {
	Key    string
	DType  robocache.DType // String or JSON
	Values []string
}

// Batch is samples stacked into one tensor a key. It belongs to its taker until Release; nothing writes to it before.
type Batch struct {
	Rows     int     // samples
	Epoch    int64   // of a Loader
	Position int64   // of its first sample in the epoch, over all ranks
	Indices  []int64 // the samples' numbers, as Map.Items takes them
	Fields   []Field // what comes in what order; shared, not to be changed
	Tensors  []Tensor
	Texts    []Texts

	Shared   []byte // what the small tensors lie in
	Released []atomic.Bool
}

// Entry gives the i-th entry of Fields: its tensor, or its texts.
func (b *Batch) Entry(i int) (*Tensor, *Texts) {
	t, s := 0, 0
	for k := range i {
		if b.Fields[k].Text() {
			s++
		} else {
			t++
		}
	}
	if b.Fields[i].Text() {
		return nil, &b.Texts[s]
	}
	return &b.Tensors[t], nil
}

// Tensor finds a tensor by key; nil where there is none.
func (b *Batch) Tensor(key string) *Tensor {
	for i := range b.Tensors {
		if b.Tensors[i].Key == key {
			return &b.Tensors[i]
		}
	}
	return nil
}

// Text finds a text column by key; nil where there is none.
func (b *Batch) Text(key string) []string {
	for i := range b.Texts {
		if b.Texts[i].Key == key {
			return b.Texts[i].Values
		}
	}
	return nil
}

// Bytes is the size of the tensors.
func (b *Batch) Bytes() int64 {
	var n int64
	for i := range b.Tensors {
		n += int64(len(b.Tensors[i].Data))
	}
	return n
}

// Release gives all buffers back. The tensors must not be touched after it. A second call does nothing.
func (b *Batch) Release() {
	for i := range b.Tensors {
		b.ReleaseTensor(i)
	}
}

// ReleaseTensor gives one tensor back, so that a small one that is kept does not keep the frames beside it.
func (b *Batch) ReleaseTensor(i int) {
	if b.Released[i].CompareAndSwap(false, true) && b.Tensors[i].Buffer != nil {
		b.Tensors[i].Buffer.Unref()
	}
}

// Buffers are the buffers of a batch, whole: what the small tensors share first, then the large ones in their order. They are the batch's:
// owner names a tensor each that keeps it.
func (b *Batch) Buffers() (buffers []Tensor, owner []int) {
	shared := false
	for _, large := range []bool{false, true} {
		for i := range b.Tensors {
			data := b.Tensors[i].Data
			if len(data) == 0 || b.Tensors[i].Alone() != large || !large && shared {
				continue
			}
			if !large {
				data, shared = b.Shared, true
			}
			buffers, owner = append(buffers, Tensor{Key: b.Tensors[i].Key, DType: robocache.Uint8, Shape: []int{len(data)}, Data: data, Device: b.Tensors[i].Device}), append(owner, i)
		}
	}
	return buffers, owner
}
