package layout

import (
	"sync/atomic"

	"github.com/goatnote-inc/robocache/loader/internal/buffers"
)

// Memory provides the buffers of batches.
type Memory struct {
	Host         *buffers.Pool
	Device       *buffers.Pool // of frames that stay on the device; nil: none stay there
	DeviceNumber int           // the driver's number of the device
}

// NewBatch returns a batch of n samples without content. Ragged tensors have no memory yet. The
// caller must call Release.
func (s *Schema) NewBatch(n int, m Memory) (*Batch, error) {
	b := &Batch{
		Rows:     n,
		Fields:   s.Fields,
		Indices:  make([]int64, n),
		Tensors:  make([]Tensor, len(s.Tensors)),
		Texts:    make([]Texts, len(s.Texts)),
		released: make([]atomic.Bool, len(s.Tensors)),
	}
	slots, sharedBytes := s.SlotsFor(n)
	var shared *buffers.Buffer
	for i := range s.Tensors {
		p, t := &s.Tensors[i], &b.Tensors[i]
		t.Key, t.DType = p.Key, p.DType
		t.Shape = append(append(make([]int, 0, len(p.Shape)+1), n), p.Shape...)
		if p.IsRagged {
			t.Shape = append([]int{0}, p.Shape[1:]...)
		}
		size, need := n*p.Bytes, sharedBytes
		switch {
		case slots[i].HasBuffer:
			need = size
		case size == 0:
			continue
		case shared != nil:
			offset := slots[i].Offset
			t.buffer, t.Data = shared.Ref(), b.shared[offset:offset+size:offset+size]
			continue
		}
		from := m.Host
		if p.IsOnDevice {
			from, t.Device = m.Device, 1+m.DeviceNumber
		}
		buf, err := from.Get(need)
		if err != nil {
			b.Release()
			return nil, err
		}
		t.buffer, t.Data = buf, buf.Mem[:size:size]
		if !slots[i].HasBuffer {
			shared, b.shared = buf, buf.Mem[:sharedBytes:sharedBytes]
		}
	}
	for i, c := range s.Texts {
		b.Texts[i] = Texts{Key: c.Key, DType: c.DType, Values: make([]string, n)}
	}
	return b, nil
}

// AllocateRagged gives a ragged tensor size bytes of memory. Data is not nil if size is 0, because
// NumPy rejects null.
func AllocateRagged(t *Tensor, size int, pool *buffers.Pool) error {
	buf, err := pool.Get(max(size, 1))
	if err != nil {
		return err
	}
	t.buffer, t.Data = buf, buf.Mem[:size:size]
	return nil
}

// BatchBytes returns the bytes of the budget that a batch of n samples uses, without ragged
// tensors. It returns at most 1<<60.
func (s *Schema) BatchBytes(n int) int64 {
	var total, shared int64
	for i := range s.Tensors {
		limit := tooLarge / int64(len(s.Tensors)) / 2 // per tensor, so that the sum is no larger
		if int64(s.Tensors[i].Bytes) > limit/int64(max(n, 1)) {
			return tooLarge
		}
		if size := n * s.Tensors[i].Bytes; size >= ownBuffer {
			total += int64(buffers.SizeClass(size))
		} else {
			shared += int64(roundUp(size, 64))
		}
	}
	if shared > 0 {
		total += int64(buffers.SizeClass(int(shared)))
	}
	return total
}
