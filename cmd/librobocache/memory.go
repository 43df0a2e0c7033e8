package main

/*
#include <stdint.h>
#include <stdlib.h>
#include "batch.h"
*/
import "C"

import (
	"sync/atomic"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// lease is memory that the client holds. It is released in groups of tensors, in any order.
type lease struct {
	free []func() // one function per group, which frees it
	left atomic.Int32
}

// leases holds the leases that have not ended.
var leases table[*lease]

// releaseGroup frees a group. It reports whether it was the last one.
func (l *lease) releaseGroup(group int) bool {
	l.free[group]()
	return l.left.Add(-1) == 0
}

// robocache_release_group is called by the deleters of tensors, from any thread of the client.
//
//export robocache_release_group
func robocache_release_group(handle C.int64_t, group C.int32_t) {
	if l, ok := leases.get(int64(handle)); ok && l.releaseGroup(int(group)) {
		leases.remove(int64(handle))
	}
}

// leaseTensors creates the C description of tensors and of a text. group[i] is the index in free of
// the function that frees tensor i. On error, everything is freed.
func leaseTensors(
	tensors []loader.Tensor,
	group []int32,
	free []func(),
	text []byte,
) (*C.robocache_batch, error) {
	dims := 0
	for i := range tensors {
		dims += len(tensors[i].Shape)
	}
	l := &lease{free: free}
	l.left.Store(int32(len(free)))
	h := int64(0)
	if len(free) > 0 {
		h = leases.put(l)
	}
	var shapes *C.int64_t
	c := C.robocache_batch_new(
		C.int64_t(h),
		C.int32_t(len(tensors)),
		C.int32_t(len(free)),
		C.int64_t(dims),
		C.int64_t(len(text)),
		&shapes,
	)
	if c == nil {
		leases.remove(h)
		for _, f := range free {
			f()
		}
		return nil, robocache.ResourceLimit(
			"batch",
			nil,
			"no memory for the description of a batch",
		)
	}
	all, at := unsafe.Slice((*int64)(unsafe.Pointer(shapes)), dims), 0
	list := unsafe.Slice(c.list, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		d := &list[i]
		*d = C.struct_robocache_tensor{batch: c, group: C.int32_t(group[i])}
		d.dl.dl_tensor.data = unsafe.Pointer(unsafe.SliceData(t.Data))
		// kDLCPU. Page-locked memory has this type too, because torch asks the driver about it.
		d.dl.dl_tensor.device.device_type = 1
		if t.Device != 0 {
			// kDLCUDA
			d.dl.dl_tensor.device = C.DLDevice{device_type: 2, device_id: C.int32_t(t.Device - 1)}
		}
		d.dl.dl_tensor.ndim = C.int32_t(len(t.Shape))
		d.dl.dl_tensor.dtype = C.DLDataType{
			code:  dlCode(t.DType),
			bits:  C.uint8_t(t.DType.Size() * 8),
			lanes: 1,
		}
		if len(t.Shape) > 0 {
			d.dl.dl_tensor.shape = (*C.int64_t)(unsafe.Pointer(&all[at]))
		}
		d.dl.deleter = C.robocache_deleter
		for _, v := range t.Shape {
			all[at] = int64(v)
			at++
		}
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(c.text)), len(text)), text)
	return c, nil
}

// dlCode returns DLPack's code for a type.
func dlCode(d robocache.DType) C.uint8_t {
	switch {
	case d == robocache.Bool:
		return 6
	case d == robocache.BFloat16:
		return 4
	case d.Float():
		return 2
	case d >= robocache.Uint8 && d <= robocache.Uint64:
		return 1
	}
	return 0
}

// entry is a tensor or a text column of an answer.
type entry struct {
	Key    string          `json:"key"`
	DType  robocache.DType `json:"dtype"`
	Shape  []int           `json:"shape"`
	Values []string        `json:"values,omitempty"`
	Text   bool            `json:"text,omitempty"`
}

// batchReply is an answer with tensors. The tensors of Batch are in the order of the entries that
// are not text (librobocache.C4).
type batchReply struct {
	Batch    uint64  `json:"batch"` // address of a robocache_batch; 0: there are no tensors
	Rows     int     `json:"rows"`
	Epoch    int64   `json:"epoch"`
	Position int64   `json:"position"`
	Entries  []entry `json:"entries"`
}

// answer collects entries and the memory behind them.
type answer struct {
	reply   batchReply
	tensors []loader.Tensor
	free    []func()
}

// buildAnswer returns the answer that f fills. On error, the memory is freed.
func buildAnswer(f func(a *answer) error) (v any, err error) {
	a := &answer{reply: batchReply{Entries: []entry{}}}
	defer func() {
		if err != nil {
			for _, f := range a.free {
				f()
			}
		}
	}()
	if err := f(a); err != nil {
		return v, err
	}
	return a.finishAnswer()
}

// finishAnswer leases the tensors to the client and returns the answer.
func (a *answer) finishAnswer() (any, error) {
	free := a.free
	a.free = nil
	if len(free) == 0 {
		return a.reply, nil
	}
	group := make([]int32, len(free))
	for i := range group {
		group[i] = int32(i)
	}
	b, err := leaseTensors(a.tensors, group, free, nil)
	if err != nil {
		return nil, err
	}
	a.reply.Batch = uint64(uintptr(unsafe.Pointer(b)))
	C.robocache_batch_forget(b)
	return revocable{a.reply, func() { C.robocache_batch_settle(b, 2) }}, nil
}

// addTensor allocates a zeroed tensor on the C heap and returns its bytes.
func (a *answer) addTensor(key string, dtype robocache.DType, shape ...int) ([]byte, error) {
	n := dtype.Size()
	for _, d := range shape {
		n *= d
	}
	p := C.calloc(1, C.size_t(max(n, 1)))
	if p == nil {
		return nil, robocache.ResourceLimit(
			"allocate",
			robocache.Where{"stream": key, "bytes": n},
			"no memory for the values",
		).WithHint("ask for fewer rows")
	}
	data := unsafe.Slice((*byte)(p), n)
	a.appendTensor(
		loader.Tensor{Key: key, DType: dtype, Shape: shape, Data: data},
		func() { C.free(p) },
	)
	return data, nil
}

// addInts allocates a tensor of n int64 numbers and returns them.
func (a *answer) addInts(key string, n int) ([]int64, error) {
	b, err := a.addTensor(key, robocache.Int64, n)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}

func (a *answer) appendTensor(t loader.Tensor, free func()) {
	if t.Shape == nil {
		t.Shape = []int{}
	}
	a.reply.Entries = append(a.reply.Entries, entry{Key: t.Key, DType: t.DType, Shape: t.Shape})
	a.tensors, a.free = append(a.tensors, t), append(a.free, free)
}

func (a *answer) addText(key string, dtype robocache.DType, values []string) {
	a.reply.Entries = append(
		a.reply.Entries,
		entry{Key: key, DType: dtype, Values: values, Text: true},
	)
}

// addBatch adds the fields of a loader's batch.
func (a *answer) addBatch(b *loader.Batch) {
	a.addFields(b, func(*loader.Field, *loader.Tensor) bool { return true })
}

// addFields adds the fields of a batch for which choose returns true, and releases the others.
// choose may change the shape of the tensor, which is nil for a text column.
func (a *answer) addFields(b *loader.Batch, choose func(f *loader.Field, t *loader.Tensor) bool) {
	a.reply.Rows, a.reply.Epoch, a.reply.Position = b.Rows, b.Epoch, b.Position
	t, s := 0, 0
	for i := range b.Fields {
		f := &b.Fields[i]
		if f.Text() {
			if choose(f, nil) {
				a.addText(b.Texts[s].Key, b.Texts[s].DType, b.Texts[s].Values)
			}
			s++
			continue
		}
		n, tensor := t, b.Tensors[t]
		t++
		if choose(f, &tensor) {
			a.appendTensor(tensor, func() { b.ReleaseTensor(n) })
		} else {
			b.ReleaseTensor(n)
		}
	}
}
