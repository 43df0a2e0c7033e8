package cuda

import (
	"errors"
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// checker proves times, lengths and offsets before a FuseOp, and under the policy error that every target has a place. The device only says
// which entry of which stream is at fault; the error is the reference's.
type checker struct {
	f     *fuser
	line  *line
	addrs []uintptr // of this run
}

// check adds the calls that look, and makes those that follow write nothing if they find fault. Run holds its lock from adjust to after.
func (f *fuser) check(groups []*fuseGroup, table uintptr) {
	c := &checker{f: f, addrs: make([]uintptr, f.l.tensors)}
	for _, g := range groups {
		p := g.p
		p.table = table
		p.tile, p.tiles = p.rows, 1
		p.work = p.batch * int64(p.streams)
		p.pivots = spanBytes
		n := g.pivots(&p, true, 1)
		k := call{kernel: "fuse_check", block: 256, grid: uint32(min(p.work, 1<<30)), shared: uint32(spanBytes + 8*n), params: paramsOf(&p), early: true}
		f.l.calls = append(f.l.calls, k)
		g.place(len(f.l.calls) - 1)
	}
	f.l.adjust = c.begin
	f.l.after = c.end
}

func (c *checker) begin(calls []call, addrs []uintptr) error {
	all, err := c.f.on.flags()
	if err != nil {
		return err
	}
	if c.line == nil { // else a launch failed, and the line is left from it
		c.line = all.take(math.MaxInt64)
	}
	copy(c.addrs, addrs)
	for i := range calls {
		p := (*fuseParams)(unsafe.Pointer(unsafe.SliceData(calls[i].params)))
		p.status = c.line.addr
	}
	return nil
}

func (c *checker) end(stream uintptr) error {
	if err := c.f.on.wait(stream); err != nil {
		return err
	}
	at := c.line.words[0]
	c.line.put()
	c.line = nil
	if at == math.MaxInt64 {
		return nil
	}
	return c.fault(int(at>>16), int(at&0xffff), stream)
}

// fault makes the error of an entry of a stream.
func (c *checker) fault(entry, stream int, on uintptr) error {
	op := c.f.op
	err := c.reference(entry, stream, on)
	if err == nil {
		err = &robocache.Error{Class: robocache.ErrMalformed, Op: c.f.l.op, Msg: "timestamps must not decrease", Hint: "they changed while they were looked at"}
	}
	var e *robocache.Error
	if !errors.As(err, &e) {
		return err
	}
	e.Op = c.f.l.op
	e = robocache.At(e, robocache.Where{"batch": entry}).(*robocache.Error)
	e.Where["batch"] = entry
	if len(op.Series) > 1 && op.Series[stream].Name == "" {
		e.Where["stream"] = stream
	}
	return e
}

// reference gives one entry of one stream, without values, to the reference.
func (c *checker) reference(entry, stream int, on uintptr) (err error) {
	op := c.f.op
	s, n := op.Series[stream], c.f.series[stream]
	// fetch copies elements from … from+count-1 of the last axis of a tensor; of [B, n] those of the entry.
	fetch := func(t *kernel.Tensor, tensor, from, count int) kernel.Tensor {
		axis := len(t.Shape) - 1
		size, step := t.DType.Size(), t.Step(axis)
		at := from * step
		if axis == 1 {
			at += entry * t.Step(0)
		}
		low := min(0, (count-1)*step)
		out := kernel.Tensor{DType: t.DType, Shape: []int{count}, Stride: []int{step}, Base: -low}
		if count > 0 {
			out.Data = make([]byte, (max(0, (count-1)*step)-low+1)*size)
			if e := c.f.on.copyOut(out.Data, uintptr(int64(c.addrs[tensor])+int64((at+low)*size)), on); err == nil {
				err = e
			}
		}
		return out
	}
	rows := s.Values.Shape[len(s.Values.Shape)-2]
	s.Values = kernel.Tensor{DType: s.Values.DType, Shape: []int{1, rows, 0}}
	s.Times = fetch(&s.Times, n.times, 0, s.Times.Shape[len(s.Times.Shape)-1])
	if s.Lengths != nil {
		t := fetch(s.Lengths, n.rows, entry, 1)
		s.Lengths = &t
	}
	if s.Offsets != nil {
		t := fetch(s.Offsets, n.rows, entry, 2)
		s.Offsets = &t
		s.Values.Shape = []int{rows, 0}
	}
	s.Rule.Quats, s.Epilogue = nil, kernel.Epilogue{}
	targets := fetch(&op.Targets, c.f.targets, 0, c.f.rows)
	if err != nil {
		return err
	}
	one := kernel.FuseOp{Series: []kernel.Series{s}, Targets: targets, Clock: op.Clock, Epsilon: op.Epsilon,
		Out: kernel.Tensor{DType: op.Out.DType, Shape: []int{1, c.f.rows, 0}}}
	return kernel.Reference{}.Fuse(&one)
}
