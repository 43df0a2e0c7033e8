package gpu

import (
	"strings"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// nvml holds the functions of nvml.h that this package uses. A device is a pointer, a result is
// nvmlReturn_t, and 0 means success. A function that the library lacks is nil.
type nvml struct {
	errorString func(code int32) string
	count       func(n *uint32) int32
	byIndex     func(i uint32, device *uintptr) int32
	uuid, name  func(device uintptr, text *byte, size uint32) int32
	utilization func(device uintptr, gpuAndMemory *[2]uint32) int32
	memory      func(device uintptr, totalFreeUsed *[3]uint64) int32
	power       func(device uintptr, mW *uint32) int32
	energy      func(device uintptr, mJ *uint64) int32
	clock       func(device uintptr, kind uint32, MHz *uint32) int32
	reasons     func(device uintptr, bits *uint64) int32
	pcie        func(device uintptr, counter uint32, KBs *uint32) int32
	gpmSupport  func(device uintptr, versionAndSupported *[2]uint32) int32
	gpmAlloc    func(sample *uintptr) int32
	gpmFree     func(sample uintptr) int32
	gpmSample   func(device, sample uintptr) int32
	gpmMetrics  func(request *gpmRequest) int32
}

// gpmRequest is nvmlGpmMetricsGet_t. The library reads number metrics. The array in the header is
// longer.
type gpmRequest struct {
	version, number uint32
	from, to        uintptr // samples
	metrics         [400]struct {
		id    uint32
		code  int32
		value float64
		names [3]uintptr
	}
}

const (
	smClock        = 1  // NVML_CLOCK_SM
	pcieReceive    = 1  // NVML_PCIE_UTIL_RX_BYTES
	notSupported   = 3  // NVML_ERROR_NOT_SUPPORTED
	noSuchFunction = 13 // NVML_ERROR_FUNCTION_NOT_FOUND
)

// loadNVML opens the library and initializes it.
func loadNVML() (*nvml, error) {
	absent := func(err any) error {
		return robocache.Unsupported("GPU monitor", nil, "there is no NVML: %v", err).
			WithHint("the library libnvidia-ml.so.1 comes with NVIDIA's driver")
	}
	lib, err := openLibrary("libnvidia-ml.so.1")
	if err != nil {
		return nil, absent(err)
	}
	n := &nvml{}
	var start func() int32
	for name, f := range map[string]any{
		"Init_v2":                   &start,
		"ErrorString":               &n.errorString,
		"DeviceGetCount_v2":         &n.count,
		"DeviceGetHandleByIndex_v2": &n.byIndex, "DeviceGetUUID": &n.uuid, "DeviceGetName": &n.name,
		"DeviceGetUtilizationRates": &n.utilization,
		"DeviceGetMemoryInfo":       &n.memory,
		"DeviceGetPowerUsage":       &n.power, "DeviceGetTotalEnergyConsumption": &n.energy,
		"DeviceGetClockInfo":                    &n.clock,
		"DeviceGetCurrentClocksThrottleReasons": &n.reasons,
		"DeviceGetPcieThroughput":               &n.pcie, "GpmQueryDeviceSupport": &n.gpmSupport,
		"GpmSampleAlloc": &n.gpmAlloc,
		"GpmSampleFree":  &n.gpmFree, "GpmSampleGet": &n.gpmSample, "GpmMetricsGet": &n.gpmMetrics,
	} {
		bindSymbol(lib, "nvml"+name, f)
	}
	if start == nil || n.errorString == nil || n.count == nil || n.byIndex == nil ||
		n.uuid == nil ||
		n.name == nil {
		return nil, absent("libnvidia-ml.so.1 lacks its first functions")
	}
	if code := start(); code != 0 {
		return nil, absent(n.errorString(code))
	}
	return n, nil
}

// deviceText returns a text property of a device, or "".
func deviceText(get func(uintptr, *byte, uint32) int32, device uintptr) string {
	var b [96]byte
	if get(device, &b[0], uint32(len(b))) != 0 {
		return ""
	}
	s, _, _ := strings.Cut(string(b[:]), "\x00")
	return s
}

// counterReader returns a function that reads one value and converts it with figure. If the library
// lacks the function, the result code is noSuchFunction.
func counterReader[T any](
	of func(*nvml) func(uintptr, *T) int32,
	figure func(T) float64,
) func(*nvml, uintptr) (float64, int32) {
	return func(n *nvml, device uintptr) (float64, int32) {
		var v T
		get := of(n)
		if get == nil {
			return 0, noSuchFunction
		}
		code := get(device, &v)
		return figure(v), code
	}
}

// bindKind returns get with a fixed kind, or nil if get is nil.
func bindKind(get func(uintptr, uint32, *uint32) int32, kind uint32) func(uintptr, *uint32) int32 {
	if get == nil {
		return nil
	}
	return func(device uintptr, v *uint32) int32 { return get(device, kind, v) }
}

// scaleBy returns a function that multiplies a value by factor.
func scaleBy[T uint32 | uint64](factor float64) func(T) float64 {
	return func(v T) float64 { return float64(v) * factor }
}

var _ = [1]struct{}{}[unsafe.Sizeof(gpmRequest{})-(24+400*40)] // checks the size against nvml.h
