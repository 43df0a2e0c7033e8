//go:build cgo

package ffmpeg

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache/video"
)

func BenchmarkConvertPlanes(b *testing.B) {
	for _, spec := range []video.Spec{
		{Pixel: video.RGB8, ChannelsFirst: true},
		{Pixel: video.RGB8},
		{Pixel: video.RGBFloat32, ChannelsFirst: true},
		{Pixel: video.RGB8, ChannelsFirst: true, Width: 224, Height: 224},
	} {
		b.Run(
			fmt.Sprintf("pixel=%d/chw=%v/%d", spec.Pixel, spec.ChannelsFirst, spec.Width),
			func(b *testing.B) {
				d := synthetic(640, 480, "yuv420p", 5, false, 1)
				defer d.Close()
				info, planes := keep(b, &d.frame)
				n, _ := d.frame.Bytes(&spec)
				dst := make([]byte, n)
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for b.Loop() {
					if err := video.ConvertPlanes(info, planes, &spec, dst); err != nil {
						b.Fatal(err)
					}
				}
			},
		)
	}
}

// mapped returns memory like the loader's buffers: whole huge pages that were touched.
func mapped(b *testing.B, n int) []byte {
	m, err := syscall.Mmap(
		-1,
		0,
		n,
		syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE,
	)
	if err != nil {
		b.Fatal(err)
	}
	_ = syscall.Madvise(m, 14) // MADV_HUGEPAGE
	for i := range m {
		m[i] = byte(i * 7)
	}
	b.Cleanup(func() { _ = syscall.Munmap(m) })
	return m
}

// threadTime returns the CPU time of this thread in nanoseconds. getrusage is less precise.
func threadTime() time.Duration {
	var t syscall.Timespec
	// CLOCK_THREAD_CPUTIME_ID
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 3, uintptr(unsafe.Pointer(&t)),
		0); errno != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}

// BenchmarkCold measures frames of an epoch from a cache: sources and batches are in memory, but
// not in the processor's caches. Eight batches of 32 frames take turns, and for each frame of a
// batch all methods take turns. One operation is one batch by every method. It reports medians of
// CPU time.
func BenchmarkCold(b *testing.B) {
	for _, size := range [][2]int{{640, 480}, {224, 224}, {100, 84}} {
		w, h := size[0], size[1]
		b.Run(fmt.Sprintf("%d×%d", w, h), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			d := synthetic(w, h, "yuv420p", 5, false, 1)
			defer d.Close()
			info, planes := keep(b, &d.frame)
			const per, batches = 32, 8
			rgb := 3 * w * h
			sources := max(128, 128<<20/rgb)
			dst := mapped(b, 4*rgb*per*batches)
			kept, pixels := mapped(b, sources*len(planes)), mapped(b, sources*rgb)
			for i := range sources {
				copy(kept[i*len(planes):], planes)
			}
			spec, hwc, floats := video.Spec{
				ChannelsFirst: true,
			}, video.Spec{}, video.Spec{
				ChannelsFirst: true,
				Pixel:         video.RGBFloat32,
			}
			check := func(err error) {
				if err != nil {
					b.Fatal(err)
				}
			}
			ways := []struct {
				name string
				f    func(to, at int)
			}{
				{"copy", func(to, at int) { copy(dst[to*rgb:(to+1)*rgb], pixels[at*rgb:]) }},
				{
					"CopyPixels",
					func(to, at int) {
						video.CopyPixels(dst[to*rgb:(to+1)*rgb], pixels[at*rgb:(at+1)*rgb])
					},
				},
				{"chw", func(to, at int) {
					check(
						video.ConvertPlanes(
							info,
							kept[at*len(planes):(at+1)*len(planes)],
							&spec,
							dst[to*rgb:(to+1)*rgb],
						),
					)
				}},
				{"hwc", func(to, at int) {
					check(
						video.ConvertPlanes(
							info,
							kept[at*len(planes):(at+1)*len(planes)],
							&hwc,
							dst[to*rgb:(to+1)*rgb],
						),
					)
				}},
				{"f32", func(to, at int) {
					check(
						video.ConvertPlanes(
							info,
							kept[at*len(planes):(at+1)*len(planes)],
							&floats,
							dst[to*4*rgb:(to+1)*4*rgb],
						),
					)
				}},
				{
					"CopyPlanes",
					func(to, at int) {
						check(d.frame.CopyPlanes(kept[at*len(planes) : (at+1)*len(planes)]))
					},
				},
			}
			times := make([][]time.Duration, len(ways))
			batch, next := 0, 0
			b.ResetTimer()
			for range b.N {
				for k, way := range ways {
					begin := threadTime()
					for i := range per {
						next += 37
						way.f(batch%batches*per+i, next%sources)
					}
					batch++
					times[k] = append(times[k], threadTime()-begin)
				}
			}
			for k, way := range ways {
				slices.Sort(times[k])
				b.ReportMetric(
					float64(times[k][len(times[k])/2].Nanoseconds())/per/1000,
					way.name+"-µs",
				)
			}
		})
	}
}

// BenchmarkDepthPlanes converts stored depth codes. Sources and results take turns as in
// BenchmarkCold.
func BenchmarkDepthPlanes(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d := synthetic(640, 480, "gray12le", 2, false, 1)
	defer d.Close()
	info, planes := keep(b, &d.frame)
	for i := 1; i < len(planes); i += 2 {
		planes[i] &= 15 // codes of 12 bits, as decoders return them
	}
	const images = 128
	kept, dst := mapped(b, images*len(planes)), mapped(b, images*4*640*480)
	for i := range images {
		copy(kept[i*len(planes):], planes)
	}
	specs := []video.Spec{{Pixel: video.Gray16}, {Pixel: video.DepthMM, Depth: &depthCodes[0]}}
	times := make([][]time.Duration, len(specs)+1)
	i := 0
	for b.Loop() {
		for k := range times {
			i += 37
			to, from := dst[i%images*4*640*480:][:4*640*480], kept[i*5%images*len(
				planes,
			):][:len(planes)]
			begin := threadTime()
			if k == len(specs) {
				copy(to, dst[i*3%images*4*640*480:][:4*640*480])
			} else {
				n, _ := d.frame.Bytes(&specs[k])
				if err := video.ConvertPlanes(info, from, &specs[k], to[:n]); err != nil {
					b.Fatal(err)
				}
			}
			times[k] = append(times[k], threadTime()-begin)
		}
	}
	for k, name := range []string{"gray16-µs", "mm-µs", "copy-of-mm-µs"} {
		slices.Sort(times[k])
		b.ReportMetric(float64(times[k][len(times[k])/2].Nanoseconds())/1000, name)
	}
}
