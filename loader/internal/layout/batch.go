package layout

import (
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
)

// Field describes one entry of a batch. Fields are in the order of the batch. Shape is the shape of
// one sample, without the batch axis.
type Field struct {
	Key   string          `json:"key"`
	DType robocache.DType `json:"dtype"` // String and JSON: a text column; else a tensor
	Shape []int           `json:"shape"`
	Kind  robocache.Kind  `json:"kind"`
	// Unit is the unit of values before normalization. For depth it is the unit that depth_unit
	// selects.
	Unit string `json:"unit,omitempty"`
	Mask bool   `json:"mask,omitempty"` // the entry is a `<key>_is_pad`
	// Ragged marks a tensor that holds the entries of all samples one after the other. It has no
	// batch axis. Its Shape is -1 and the shape of one entry. The next field has Lengths set.
	Ragged bool `json:"ragged,omitempty"`
	// Lengths marks `<key>_lengths`: the number of entries of each sample, or of each step of its
	// window. If the key is a span, the next field has Times set.
	Lengths bool `json:"lengths,omitempty"`
	// Times marks `<key>_times`: the time of each entry in ns after the time of its sample. Times
	// are ragged by the same lengths. For spans of frames and clouds they are dense, one per step.
	Times bool `json:"times,omitempty"`
}

// Text reports whether the entry is a list of strings or JSON values per batch, not a tensor.
func (f *Field) Text() bool { return f.DType == robocache.String || f.DType == robocache.JSON }

// Tensor is one contiguous array of a batch: C order, little-endian, outside the Go heap, at a
// 64-byte boundary. A large tensor begins at a page boundary.
type Tensor struct {
	Key   string
	DType robocache.DType
	Shape []int // with the batch axis; the first axis of a ragged tensor counts all entries
	Data  []byte
	// Device is 0 if Data is host memory. Otherwise it is 1 + the number of the CUDA device that
	// owns Data, which the host cannot read. Only frames of raw batches that the device decoded are
	// there.
	Device int

	buffer *buffers.Buffer // owns Data; nil if Data is empty
}

// Alone reports whether the tensor has a separate buffer. Small tensors share one.
func (t *Tensor) Alone() bool { return len(t.Data) >= ownBuffer || t.Device != 0 }

// Texts is one text column of a batch.
type Texts struct {
	Key    string
	DType  robocache.DType // String or JSON
	Values []string
}

// Batch is a list of samples stacked into one tensor per key. The consumer owns it until Release.
// Nothing writes to it in the meantime.
type Batch struct {
	Rows     int     // number of samples
	Epoch    int64   // of a Loader
	Position int64   // of the first sample in the epoch, over all ranks
	Indices  []int64 // numbers of the samples, as Map.Items accepts them
	Fields   []Field // order and kind of the entries; shared between batches and read-only
	Tensors  []Tensor
	Texts    []Texts

	shared   []byte        // the buffer of the small tensors
	released []atomic.Bool // per tensor
}

// Entry returns the tensor or the text column of Fields[i]. The other result is nil.
func (b *Batch) Entry(i int) (*Tensor, *Texts) {
	tensors, texts := 0, 0 // before field i
	for k := range i {
		if b.Fields[k].Text() {
			texts++
		} else {
			tensors++
		}
	}
	if b.Fields[i].Text() {
		return nil, &b.Texts[texts]
	}
	return &b.Tensors[tensors], nil
}

// Tensor returns the tensor of a key, or nil.
func (b *Batch) Tensor(key string) *Tensor {
	for i := range b.Tensors {
		if b.Tensors[i].Key == key {
			return &b.Tensors[i]
		}
	}
	return nil
}

// Text returns the text column of a key, or nil.
func (b *Batch) Text(key string) []string {
	for i := range b.Texts {
		if b.Texts[i].Key == key {
			return b.Texts[i].Values
		}
	}
	return nil
}

// Bytes returns the total size of the tensors.
func (b *Batch) Bytes() int64 {
	var n int64
	for i := range b.Tensors {
		n += int64(len(b.Tensors[i].Data))
	}
	return n
}

// Release releases all buffers. The tensors must not be used after it. Further calls do nothing.
func (b *Batch) Release() {
	for i := range b.Tensors {
		b.ReleaseTensor(i)
	}
}

// ReleaseTensor releases one tensor. A consumer that keeps a small tensor then does not keep the
// frames of the batch in memory.
func (b *Batch) ReleaseTensor(i int) {
	if b.released[i].CompareAndSwap(false, true) && b.Tensors[i].buffer != nil {
		b.Tensors[i].buffer.Unref()
	}
}

// Buffers returns the whole buffers of a batch: the buffer that small tensors share, then those of
// large tensors in their order. The batch still owns them. owner[i] is the tensor whose release
// ends the use of buffers[i].
func (b *Batch) Buffers() (buffers []Tensor, owner []int) {
	shared := false
	for _, large := range []bool{false, true} {
		for i := range b.Tensors {
			data := b.Tensors[i].Data
			if len(data) == 0 || b.Tensors[i].Alone() != large || !large && shared {
				continue
			}
			if !large {
				data, shared = b.shared, true
			}
			buffers = append(buffers, Tensor{
				Key:    b.Tensors[i].Key,
				DType:  robocache.Uint8,
				Shape:  []int{len(data)},
				Data:   data,
				Device: b.Tensors[i].Device,
			})
			owner = append(owner, i)
		}
	}
	return buffers, owner
}
