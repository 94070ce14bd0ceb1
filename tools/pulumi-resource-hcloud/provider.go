// Package hcloud joins Hetzner's Terraform provider and Pulumi's bridge into a Pulumi provider.
package hcloud

import (
	"context"
	_ "embed"

	"github.com/hetznercloud/terraform-provider-hcloud/hcloud"
	pf "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/pf/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge/tokens"
	shimv2 "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim/sdk-v2"
)

// Name is Pulumi's name of the provider.
const Name = "hcloud"

// Version is that of the Terraform provider inside.
const Version = "1.57.0"

//go:embed bridge-metadata.json
var metadata []byte

// Schema is what the generator wrote for this version.
//
//go:embed schema.json
var Schema []byte

// numbered have an id that is a number; Pulumi's are texts.
var numbered = []string{
	"hcloud_storage_box", "hcloud_storage_box_snapshot", "hcloud_storage_box_subaccount", "hcloud_zone",
}

// Info says how each Terraform resource is called in Pulumi.
func Info(ctx context.Context) tfbridge.ProviderInfo {
	info := tfbridge.ProviderInfo{
		P:            pf.MuxShimWithPF(ctx, shimv2.NewProvider(hcloud.Provider()), hcloud.NewPluginProvider()),
		Name:         Name,
		Version:      Version,
		MetadataInfo: tfbridge.NewProviderMetadata(metadata),
		Resources:    map[string]*tfbridge.ResourceInfo{},
		DataSources:  map[string]*tfbridge.DataSourceInfo{},
	}
	info.MustComputeTokens(tokens.SingleModule("hcloud_", "index", tokens.MakeStandard(Name)))
	for _, name := range numbered {
		info.Resources[name].Fields = map[string]*tfbridge.SchemaInfo{"id": {Type: "string"}}
	}
	// Its default is of a named text type, which the bridge does not take.
	info.DataSources["hcloud_image"].Fields = map[string]*tfbridge.SchemaInfo{
		"with_architecture": {Default: &tfbridge.DefaultInfo{Value: "x86"}},
	}
	return info
}
