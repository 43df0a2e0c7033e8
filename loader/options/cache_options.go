package options

// Values of Config.Cache that are not a directory.
const (
	CacheInRAM    = "ram"
	CacheOnDevice = "device"
)

// HasCacheDirectory reports whether the cache is a directory.
func (cfg *Config) HasCacheDirectory() bool {
	return cfg.Cache != "" && cfg.Cache != CacheInRAM && cfg.Cache != CacheOnDevice
}

// CachesEncoded reports whether the cache directory holds the encoded bytes of remote files instead
// of decoded frames.
func (cfg *Config) CachesEncoded() bool {
	return cfg.CacheFormat == CacheEncoded ||
		cfg.CacheFormat == CacheAuto && len(cfg.ImageSize) == 0 && !cfg.HasFilter()
}
